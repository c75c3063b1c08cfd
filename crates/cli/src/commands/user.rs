//! `fondaco user` and `fondaco audit`: the users of the cluster, and their changes.

use std::io::{BufRead, IsTerminal, stdin};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use fondaco_api::{AuditEntry, AuditList, NewUser, UserList, UserResource};
use fondaco_model::cluster::ControlRole;

use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco user`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// List the users of the cluster
    List(ListOptions),
    /// Add a user, or change one; the password is read from standard input
    Put(PutOptions),
    /// Delete users: their connections and sessions end
    Drop(DropOptions),
}

/// `fondaco user list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco user list")]
pub struct ListOptions {
    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco user put`.
#[derive(Debug, Args)]
#[command(after_help = "\
Rights that are not named are taken away.

Example:
  fondaco user put ann --role operator --stores '*' < password.txt
  fondaco user put shop --stores 'pymk,feature-*' --writes 'cart-*' < password.txt")]
pub struct PutOptions {
    /// The name
    name: String,

    /// The rights of the user at control ports and in the console; none by default
    #[arg(long, value_enum)]
    role: Option<Role>,

    /// Stores that the user may read: patterns
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',')]
    stores: Vec<String>,

    /// Stores that the user may write, and read: patterns
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',')]
    writes: Vec<String>,

    /// Let the user disconnect other clients and change settings over RESP
    #[arg(long)]
    admin: bool,

    /// Keep the password of a known user
    #[arg(long)]
    keep_password: bool,

    #[command(flatten)]
    node: ControlPort,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// See everything
    Viewer,
    /// Also change stores, push, swap, roll back, and move partitions
    Operator,
    /// Also change users and settings
    Admin,
}

/// `fondaco user drop`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco user drop ann")]
pub struct DropOptions {
    /// The names
    #[arg(required = true)]
    names: Vec<String>,

    #[command(flatten)]
    node: ControlPort,
}

/// `fondaco audit`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco audit --last 50")]
pub struct AuditOptions {
    /// How many changes are shown
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    last: usize,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco user`.
pub fn run(command: UserCommand, output: &Output) -> anyhow::Result<()> {
    match command {
        UserCommand::List(options) => {
            let list: UserList = options.node.client()?.get("/v1/users")?;
            output.result(&list, |list| text(&list.users))
        }
        UserCommand::Put(options) => {
            let password = match options.keep_password {
                true => None,
                false => Some(read_password(output)?),
            };
            let new = NewUser {
                password,
                stores: options.stores,
                writes: options.writes,
                admin: options.admin,
                role: options.role.map(|role| match role {
                    Role::Viewer => ControlRole::Viewer,
                    Role::Operator => ControlRole::Operator,
                    Role::Admin => ControlRole::Admin,
                }),
            };
            let user: UserResource = options
                .node
                .client()?
                .put(&format!("/v1/users/{}", options.name), &new)?;
            output.result(&user, |user| text(std::slice::from_ref(user)))
        }
        UserCommand::Drop(options) => {
            let client = options.node.client()?;
            for name in &options.names {
                client.delete(&format!("/v1/users/{name}"))?;
            }
            output.result(&options.names, |names| format!("deleted: {}\n", names.join(", ")))
        }
    }
}

/// Runs `fondaco audit`.
pub fn audit(options: &AuditOptions, output: &Output) -> anyhow::Result<()> {
    let client = options.node.client()?;
    let list: AuditList = client.get(&format!("/v1/audit?count={}", options.last))?;
    output.result(&list, |list| audit_text(&list.entries))
}

fn read_password(output: &Output) -> anyhow::Result<String> {
    if stdin().is_terminal() {
        output.note("password (it is shown while you type; or pipe it in):");
    }
    let mut line = String::new();
    stdin()
        .lock()
        .read_line(&mut line)
        .context("cannot read the password from standard input")?;
    let password = line.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        bail!("no password was given on standard input: pipe it in, or keep the present one with --keep-password");
    }
    Ok(password)
}

fn text(users: &[UserResource]) -> String {
    if users.is_empty() {
        return "the cluster has no users; those of configuration files are not listed: fondaco user put NAME\n"
            .to_owned();
    }
    let row = |user: &UserResource| {
        vec![
            user.name.clone(),
            match user.role {
                None => "-".to_owned(),
                Some(ControlRole::Viewer) => "viewer".to_owned(),
                Some(ControlRole::Operator) => "operator".to_owned(),
                Some(ControlRole::Admin) => "admin".to_owned(),
            },
            user.stores.join(","),
            user.writes.join(","),
            if user.admin { "yes" } else { "no" }.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = users.iter().map(row).collect();
    table(&["USER", "ROLE", "READS", "WRITES", "RESP ADMIN"], &rows, &[false; 5])
}

fn audit_text(entries: &[AuditEntry]) -> String {
    if entries.is_empty() {
        return "nothing was changed through a control port yet\n".to_owned();
    }
    let row = |entry: &AuditEntry| {
        vec![
            output::timestamp(entry.at_unix_ms),
            if entry.user.is_empty() { "-" } else { &entry.user }.to_owned(),
            entry.role.clone(),
            format!("{} {}", entry.method, entry.path),
            entry.status.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    table(&["WHEN", "USER", "ROLE", "REQUEST", "STATUS"], &rows, &[false; 5])
}
