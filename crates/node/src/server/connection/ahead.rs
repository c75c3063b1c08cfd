//! Looking ahead in what a client has sent: memory is asked for what the next look-ups look at, for all of them at once,
//! and not for one after the other.

use fondaco_resp::command::resolve;
use fondaco_resp::{Arguments, Limits, Parse, parse_request};
use smallvec::SmallVec;

use crate::catalog::Catalog;
use crate::forward::Forwarder;
use crate::server::commands::versioned::is_look_up;

/// For how many look-ups memory is asked at once.
const LOOK_UPS_MAX: usize = 32;
/// For how many it is not tried again where it was no use.
const NO_USE_FOR: usize = 1024;

/// How far ahead of what is carried out memory was asked for more.
#[derive(Default)]
pub(super) struct Ahead {
    /// For how many look-ups it was that were not carried out since.
    look_ups: usize,
    arguments: Arguments,
}

impl Ahead {
    /// A look-up is carried out, behind which this is left of the input.
    #[inline]
    pub(super) fn note(&mut self, rest: &[u8], limits: &Limits, catalog: &Catalog, forwarder: &Forwarder) {
        match self.look_ups.checked_sub(1) {
            Some(left) => self.look_ups = left,
            None if rest.is_empty() => {}
            None => self.look(rest, limits, catalog, forwarder),
        }
    }

    fn look(&mut self, mut rest: &[u8], limits: &Limits, catalog: &Catalog, forwarder: &Forwarder) {
        let mut keys = SmallVec::<[&[u8]; LOOK_UPS_MAX]>::new();
        self.arguments.clear();
        while keys.len() < LOOK_UPS_MAX
            && let Ok(Parse::Complete { consumed }) = parse_request(rest, limits, &mut self.arguments)
        {
            if resolve(&self.arguments, rest).is_ok_and(|spec| is_look_up(spec.id)) {
                keys.push(self.arguments.get_in_buffer(1, rest).unwrap_or_default());
            }
            rest = &rest[consumed..];
        }
        self.look_ups = match keys.is_empty() || forwarder.prefetch(catalog, keys.iter().copied()) {
            true => keys.len(),
            false => NO_USE_FOR,
        };
    }
}
