//! The errors for requests with an unknown command or a wrong number of arguments.
//!
//! The wording is that of Redis, because clients match on it.

use super::alternative::alternative;
use super::{CommandSpec, find};
use crate::Arguments;

/// How much of a name is quoted, in bytes; also the limit for all arguments together, as Redis counts them.
const QUOTED_BYTES_MAX: usize = 128;

/// The command or subcommand of a request. `buffer` must be the parsed one.
///
/// # Errors
///
/// The error to reply with, including its code, if the command does not exist or does not accept that many arguments.
#[inline]
pub fn resolve(arguments: &Arguments, buffer: &[u8]) -> Result<&'static CommandSpec, String> {
    let name = arguments.get(0, buffer).unwrap_or_default();
    let Some(mut spec) = find(name) else {
        return Err(unknown_command_error(arguments.iter(buffer)));
    };
    if !spec.subcommands.is_empty()
        && let Some(name) = arguments.get(1, buffer)
    {
        spec = spec
            .subcommand(name)
            .ok_or_else(|| unknown_subcommand_error(spec, name))?;
    }
    if spec.accepts(arguments.len()) {
        Ok(spec)
    } else {
        Err(argument_count_error(spec))
    }
}

/// The error for a request whose first argument is not the name of a command.
#[cold]
pub fn unknown_command_error<'a>(arguments: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut arguments = arguments.into_iter();
    let name = arguments.next().unwrap_or_default();
    if let Some(alternative) = alternative(name) {
        let name = String::from_utf8_lossy(name);
        return format!("ERR unknown command '{name}': {alternative}");
    }
    let name = quoted(name, QUOTED_BYTES_MAX);
    let mut beginning = String::new();
    for argument in arguments {
        let room = QUOTED_BYTES_MAX.saturating_sub(beginning.len());
        if room == 0 {
            break;
        }
        beginning.push('\'');
        beginning.push_str(&quoted(argument, room));
        beginning.push_str("' ");
    }
    format!("ERR unknown command '{name}', with args beginning with: {beginning}")
}

/// The error for a container with an unknown subcommand.
#[cold]
pub fn unknown_subcommand_error(container: &CommandSpec, name: &[u8]) -> String {
    let name = quoted(name, QUOTED_BYTES_MAX);
    let container = container.name.to_uppercase();
    format!("ERR unknown subcommand '{name}'. Try {container} HELP.")
}

/// The error for a command with too few or too many arguments.
#[cold]
pub fn argument_count_error(spec: &CommandSpec) -> String {
    format!("ERR wrong number of arguments for '{}' command", spec.name)
}

/// Whether a first argument is the start of a line of HTTP that was sent to the wrong port, by mistake or by a web
/// page in a browser. Close such a connection without an answer, as Redis does, since the following lines might be
/// valid commands.
#[cold]
pub fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The error for a subcommand with too many arguments that the table does not count.
#[cold]
pub fn subcommand_argument_error(container: &str, name: &[u8]) -> String {
    let name = quoted(name, QUOTED_BYTES_MAX);
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP.")
}

/// An argument as an error quotes it: at most `bytes_max` bytes, and as in Redis only those before the first zero.
/// The line ends in it become spaces when the error is [written](crate::Reply::error).
#[cold]
pub fn quoted(text: &[u8], bytes_max: usize) -> String {
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end.min(bytes_max)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandId;
    use crate::{Limits, parse_request};

    fn resolved(line: &str) -> Result<CommandId, String> {
        let mut arguments = Arguments::new();
        let line = format!("{line}\r\n");
        parse_request(line.as_bytes(), &Limits::default(), &mut arguments).unwrap();
        resolve(&arguments, line.as_bytes()).map(|spec| spec.id)
    }

    #[test]
    fn a_request_is_resolved_to_its_command() {
        assert_eq!(resolved("gEt pymk:42"), Ok(CommandId::Get));
        assert_eq!(resolved("COMMAND"), Ok(CommandId::Command));
        assert_eq!(resolved("command Docs get set"), Ok(CommandId::CommandDocs));
        assert_eq!(resolved("CLIENT SETNAME me"), Ok(CommandId::ClientSetName));
        assert_eq!(resolved("CONFIG GET a b"), Ok(CommandId::ConfigGet));
    }

    #[test]
    fn errors_have_the_wording_of_redis() {
        for (line, expected) in [
            ("FOO", "ERR unknown command 'FOO', with args beginning with: "),
            (
                "FOO a b",
                "ERR unknown command 'FOO', with args beginning with: 'a' 'b' ",
            ),
            (
                "'a\r' \"\\n\"",
                "ERR unknown command 'a\r', with args beginning with: '\n' ",
            ),
            ("GET", "ERR wrong number of arguments for 'get' command"),
            ("GET a b", "ERR wrong number of arguments for 'get' command"),
            ("CLIENT", "ERR wrong number of arguments for 'client' command"),
            ("CLIENT ID x", "ERR wrong number of arguments for 'client|id' command"),
            ("CLIENT nosuch", "ERR unknown subcommand 'nosuch'. Try CLIENT HELP."),
            ("CLIENT \"a\\x00b\"", "ERR unknown subcommand 'a'. Try CLIENT HELP."),
        ] {
            assert_eq!(resolved(line), Err(expected.to_owned()), "{line:?}");
        }
    }

    #[test]
    fn a_command_that_only_redis_has_gets_an_alternative() {
        for (line, expected) in [
            ("KEYS *", "SCAN"),
            ("Eval x 0", "client"),
            ("SUBSCRIBE x", "broker"),
            ("hset s:k f v", "MGET"),
            ("LPUSH s:k v", "SET"),
            ("WATCH s:k", "FONDACO.PUT"),
            ("XADD s:k", "Kafka"),
        ] {
            let error = resolved(line).unwrap_err();
            let name = line.split(' ').next().unwrap();
            assert!(error.starts_with(&format!("ERR unknown command '{name}': ")), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn lines_of_http_are_detected_and_are_not_commands() {
        for name in ["POST", "post", "Host:"] {
            assert!(is_http(name.as_bytes()));
            assert!(find(name.as_bytes()).is_none());
        }
        assert!(!is_http(b"GET"));
    }

    #[test]
    fn errors_quote_no_more_than_redis_does() {
        let (long_x, long_y) = ("x".repeat(100), "y".repeat(100));
        let expected = format!(
            "ERR unknown command '{}', with args beginning with: '{long_x}' '{}' ",
            "N".repeat(128),
            "y".repeat(25),
        );
        let line = format!("{} {long_x} {long_y} z", "N".repeat(200));
        assert_eq!(resolved(&line), Err(expected));
    }
}
