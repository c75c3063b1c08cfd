//! Keys that name no store, where the process has a default one: its name is put before them, as soon as their request is
//! read whole. So frameworks that prefix keys in ways of their own run unchanged, and no later step knows of it.

use bytes::{BufMut, BytesMut};
use fondaco_catalog::Catalog;
use fondaco_resp::command::{CommandSpec, Group, resolve};
use fondaco_resp::{Arguments, Limits, Parse, parse_request};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Connection;

/// How far the input was looked at.
#[derive(Default)]
pub(super) struct Naming {
    arguments: Arguments,
    /// How many bytes at the end of the input were not.
    pub(super) unnamed: usize,
    /// How many there must be before there is another whole request.
    needed: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Names the default store, if there is one, in the input since the last time.
    #[inline]
    pub(super) fn name_default_store(&mut self, catalog: &Catalog, limits: &Limits) {
        // While the node does not know its stores, no key names one: requests are refused, and named later.
        if self.context.shared.config.default_store.is_some() && !catalog.is_loading() {
            self.name_store(catalog, limits);
        }
    }

    fn name_store(&mut self, catalog: &Catalog, limits: &Limits) {
        let shared = &self.context.shared;
        let Some(store) = &shared.config.default_store else {
            return;
        };
        let naming = &mut self.naming;
        if naming.unnamed < naming.needed {
            return;
        }
        let mut at = self.input.len().saturating_sub(naming.unnamed).max(self.consumed);
        let mut named: Option<BytesMut> = None;
        naming.arguments.clear();
        naming.needed = 0;
        while at < self.input.len() {
            let rest = &self.input[at..];
            let (bytes, spec) = match parse_request(rest, limits, &mut naming.arguments) {
                Ok(Parse::Complete { consumed }) => (consumed, resolve(&naming.arguments, rest).ok()),
                Ok(Parse::Empty { consumed }) => (consumed, None),
                Ok(Parse::Incomplete { needed }) => {
                    naming.needed = needed;
                    break;
                }
                // The loop that takes requests comes to the same.
                Ok(Parse::TooLong { .. }) | Err(_) => break,
            };
            let lacking = spec.map(|spec| lacking(spec, &naming.arguments, rest, catalog));
            match lacking.filter(|places| !places.is_empty()) {
                Some(places) => {
                    let out = named.get_or_insert_with(|| BytesMut::from(&self.input[..at]));
                    write_named(out, &naming.arguments, rest, &places, store.as_str());
                }
                None => {
                    if let Some(out) = &mut named {
                        out.extend_from_slice(&rest[..bytes]);
                    }
                }
            }
            at += bytes;
        }
        naming.unnamed = self.input.len() - at;
        if let Some(mut out) = named {
            out.extend_from_slice(&self.input[at..]);
            self.input = out;
            // It is another beginning than was looked at before.
            self.arguments.clear();
            self.needed = 0;
            self.charge_buffers();
        }
    }
}

/// The places of the keys that name no store.
fn lacking(spec: &CommandSpec, arguments: &Arguments, buffer: &[u8], catalog: &Catalog) -> Vec<usize> {
    if spec.group == Group::Own {
        return Vec::new();
    }
    let lacks = |&place: &usize| {
        let key = arguments.get(place, buffer).unwrap_or_default();
        let name = memchr::memchr(b':', key).map(|colon| &key[..colon]);
        name.and_then(|name| catalog.store_on_wire(name)).is_none()
    };
    spec.key_places(arguments.len()).filter(lacks).collect()
}

fn write_named(out: &mut BytesMut, arguments: &Arguments, buffer: &[u8], places: &[usize], store: &str) {
    let line = |out: &mut BytesMut, kind: char, number: usize| {
        out.extend_from_slice(format!("{kind}{number}\r\n").as_bytes());
    };
    line(out, '*', arguments.len());
    for (place, argument) in arguments.iter(buffer).enumerate() {
        let is_named = places.contains(&place);
        let before = if is_named { store.len() + 1 } else { 0 };
        line(out, '$', before + argument.len());
        if is_named {
            out.extend_from_slice(store.as_bytes());
            out.put_u8(b':');
        }
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}
