//! `CLIENT HELP`, `CLUSTER HELP` and similar commands: generated from the table, so that they are always up to date.

use super::{Argument, ArgumentKind, CommandSpec};
use crate::Reply;

/// Describes the subcommands of `container` in two lines each, in the layout of Redis.
pub fn write_help(container: &CommandSpec, reply: &mut Reply<'_>) {
    let bare = container.accepts(1);
    reply.array(1 + 2 * (container.subcommands.len() + usize::from(bare)));
    let name = container.name.to_uppercase();
    reply.simple(&format!(
        "{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    ));
    if bare {
        reply.simple("(no subcommand)");
        reply.simple(&format!("    {}.", container.summary));
    }
    for subcommand in container.subcommands {
        let mut usage = subcommand.last_name().to_uppercase();
        for argument in subcommand.arguments {
            usage.push(' ');
            usage.push_str(&syntax(argument));
        }
        reply.simple(&usage);
        reply.simple(&format!("    {}.", subcommand.summary));
    }
}

/// The syntax of an argument: brackets around optional parts, bars between choices.
fn syntax(argument: &Argument) -> String {
    let parts = |separator| {
        let parts: Vec<_> = argument.arguments.iter().map(syntax).collect();
        parts.join(separator)
    };
    let value = match argument.kind {
        ArgumentKind::PureToken => String::new(),
        ArgumentKind::OneOf => parts("|"),
        ArgumentKind::Block => parts(" "),
        _ => format!("<{}>", argument.name),
    };
    let mut text = match argument.token {
        Some(token) if value.is_empty() => token.to_owned(),
        Some(token) => format!("{token} {value}"),
        None => value,
    };
    if argument.is_multiple {
        text = format!("{text} [{text} ...]");
    }
    if argument.is_optional {
        text = format!("[{text}]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;
    use crate::command::find;

    fn help(container: &str) -> String {
        let mut buffer = Vec::new();
        let spec = find(container.as_bytes()).unwrap();
        write_help(spec, &mut Reply::new(&mut buffer, Protocol::Resp2));
        String::from_utf8(buffer).unwrap()
    }

    #[test]
    fn help_shows_the_syntax() {
        let client = help("client");
        let head = "*23\r\n+CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n";
        assert!(client.starts_with(head), "{client}");
        assert!(client.contains("+NO-EVICT ON|OFF\r\n+    "), "{client}");
        assert!(
            client.contains("+SETINFO LIB-NAME <libname>|LIB-VER <libver>\r\n"),
            "{client}"
        );
        assert!(client.ends_with("+HELP\r\n+    Prints this help.\r\n"), "{client}");
        let config = help("config");
        assert!(config.contains("+SET <parameter> <value> [<parameter> <value> ...]\r\n"));
        assert!(help("command").contains("+INFO [<command-name> [<command-name> ...]]\r\n"));
    }

    #[test]
    fn help_has_the_announced_number_of_lines() {
        for container in ["client", "cluster", "config", "command"] {
            let text = help(container);
            let lines = text.lines().count() - 1;
            assert!(text.starts_with(&format!("*{lines}\r\n")), "{text}");
        }
    }
}
