//! Handing slow requests to the log of them.

use std::time::Duration;

use fondaco_catalog::Setting;
use fondaco_metrics::SlowLog;
use fondaco_resp::command::{CommandId, all, resolve};
use fondaco_resp::{Arguments, parse_request};

use super::Connection;
use crate::server::ServerState;
use crate::server::clients::Client;

/// From when on a request is slow.
#[inline]
pub(super) fn threshold(shared: &ServerState) -> Duration {
    Duration::from_micros(shared.settings.get(Setting::SlowRequestMicroseconds))
}

/// Keeps a slow request whose arguments are not known any more.
#[cold]
pub(super) fn keep(shared: &ServerState, client: &Client, command: CommandId, count: u64, took: Duration) {
    let words = name_of(command).to_uppercase();
    let words: Vec<&[u8]> = words.split('|').map(str::as_bytes).collect();
    keep_words(shared, client, command, &words, count, took);
}

fn keep_words(shared: &ServerState, client: &Client, command: CommandId, words: &[&[u8]], count: u64, took: Duration) {
    let name = client.described().name.clone();
    let client = (client.address.as_str(), name.as_str());
    shared
        .slow_log
        .keep(name_of(command), words, count.saturating_sub(1), took, client);
}

fn name_of(command: CommandId) -> &'static str {
    let mut specs = all().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    specs.find(|spec| spec.id == command).map_or("", |spec| spec.name)
}

impl<S> Connection<S> {
    /// Keeps the requests that were answered since the last read, as one slow request.
    #[cold]
    pub(super) fn keep_slow(&self, took: Duration) {
        let mut answered = self.answered.iter().filter(|(command, _)| SlowLog::keeps(*command));
        let Some(&(first, count)) = answered.next() else {
            return;
        };
        let count = count + answered.map(|(_, count)| count).sum::<u64>();
        let shared = &self.context.shared;
        // The rest of the input begins with the request, unless the queue has it.
        let mut arguments = Arguments::new();
        let begins = parse_request(&self.input, &fondaco_resp::Limits::default(), &mut arguments).is_ok();
        match resolve(&arguments, &self.input) {
            Ok(spec) if begins && self.consumed > 0 && spec.id == first => {
                let words: Vec<&[u8]> = arguments.iter(&self.input).collect();
                keep_words(shared, &self.client, first, &words, count, took);
            }
            _ => keep(shared, &self.client, first, count, took),
        }
    }
}
