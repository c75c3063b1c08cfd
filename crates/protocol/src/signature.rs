//! Signed requests: a node proves to another one that it has the cluster's token, without sending it.
//!
//! The address of a node comes from the coordination service. An attacker with write access to that service can
//! announce their own node, and would receive a token that is sent to it. A signature is useless to them: it is valid
//! for one request, to one recipient, for a short time, and once.
//!
//! The signature is the HMAC-SHA256, with the token as its key, of these lines, each ended by a line feed:
//!
//! ```text
//! fondaco-request-1
//! method                     GET
//! path and query             /v1/stores/pymk/versions/7/files/manifest.json
//! recipient                  host:port, as the recipient advertises its HTTP port
//! time                       milliseconds since 1970
//! nonce                      32 hexadecimal digits, never used twice
//! range                      the value of the header Range, or nothing
//! body                       the SHA-256 of the body, in hexadecimal digits
//! ```
//!
//! It is sent in the header `authorization: Fondaco time nonce body signature`, the last two in hexadecimal digits.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::str::FromStr;

use ring::hmac;
use sha2::{Digest, Sha256};

/// The maximum difference between the time of a request and the clock of its recipient, in milliseconds.
pub const SIGNED_MS_MAX: u64 = 60_000;

/// The header of a refusal that contains the recipient's time, in milliseconds since 1970.
pub const TIME_HEADER: &str = "fondaco-time";

/// How many nonces a recipient remembers: those of all requests that could be replayed.
const NONCES_MAX: usize = 200_000;

/// The scheme in the header `authorization`.
const SCHEME: &str = "Fondaco ";

/// Signs requests, and verifies signatures, with the token of a cluster.
#[derive(Clone)]
pub struct RequestKey(hmac::Key);

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestKey(…)")
    }
}

/// The signed parts of a request, except its time and nonce.
#[derive(Debug, Clone, Copy)]
pub struct SignedRequest<'a> {
    /// The method, in capital letters.
    pub method: &'a str,
    /// The path with the query.
    pub target: &'a str,
    /// `host:port`, as the recipient advertises its HTTP port.
    pub recipient: &'a str,
    /// The value of the header `range`; empty without one.
    pub range: &'a str,
}

/// The signature of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    unix_ms: u64,
    nonce: [u8; 16],
    body: [u8; 32],
    tag: [u8; 32],
}

impl RequestKey {
    /// The key of the cluster that has this token.
    pub fn new(token: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()))
    }

    /// Signs a request at this time, by this process's clock, with a random nonce.
    pub fn sign(&self, request: &SignedRequest<'_>, body: &[u8], unix_ms: u64) -> Signature {
        let mut signature = Signature {
            unix_ms,
            nonce: std::array::from_fn(|_| fastrand::u8(..)),
            body: Sha256::digest(body).into(),
            tag: [0; 32],
        };
        let tag = hmac::sign(&self.0, signature.text(request).as_bytes());
        signature.tag.copy_from_slice(tag.as_ref());
        signature
    }

    /// Whether a signature is valid for this request and key. Takes the same time for every wrong one.
    pub fn verifies(&self, request: &SignedRequest<'_>, signature: &Signature) -> bool {
        hmac::verify(&self.0, signature.text(request).as_bytes(), &signature.tag).is_ok()
    }
}

impl Signature {
    /// Whether a value of the header `authorization` has the scheme of a signature.
    pub fn is_meant(authorization: &str) -> bool {
        authorization.starts_with(SCHEME)
    }

    /// When the request was signed, by the signer's clock.
    pub fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    /// Whether this is the body that was signed.
    pub fn is_of_body(&self, body: &[u8]) -> bool {
        <[u8; 32]>::from(Sha256::digest(body)) == self.body
    }

    fn text(&self, request: &SignedRequest<'_>) -> String {
        let SignedRequest {
            method,
            target,
            recipient,
            range,
        } = request;
        let (time, nonce, body) = (self.unix_ms, hex::encode(self.nonce), hex::encode(self.body));
        format!("fondaco-request-1\n{method}\n{target}\n{recipient}\n{time}\n{nonce}\n{range}\n{body}\n")
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nonce, body, tag) = (hex::encode(self.nonce), hex::encode(self.body), hex::encode(self.tag));
        write!(f, "{SCHEME}{} {nonce} {body} {tag}", self.unix_ms)
    }
}

impl FromStr for Signature {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.strip_prefix(SCHEME).ok_or(())?.split(' ');
        let mut next = || parts.next().ok_or(());
        let signature = Self {
            unix_ms: next()?.parse().map_err(|_| ())?,
            nonce: unhex(next()?).ok_or(())?,
            body: unhex(next()?).ok_or(())?,
            tag: unhex(next()?).ok_or(())?,
        };
        match parts.next() {
            None => Ok(signature),
            Some(_) => Err(()),
        }
    }
}

/// The signatures that a recipient has seen, so that none is accepted twice.
#[derive(Debug, Default)]
pub struct SeenSignatures {
    nonces: HashSet<[u8; 16]>,
    /// In the order of arrival, with the times until which they could be replayed.
    ends: VecDeque<(u64, [u8; 16])>,
}

/// Why a valid signature is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unacceptable {
    /// It was made too long ago, or in the future, by the clock of the recipient.
    Time,
    /// It has been seen before.
    Again,
    /// Too many others were seen during their validity.
    TooMany,
}

impl SeenSignatures {
    /// Records a signature that was verified.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn accept(&mut self, signature: &Signature, now_unix_ms: u64) -> Result<(), Unacceptable> {
        if signature.unix_ms.abs_diff(now_unix_ms) > SIGNED_MS_MAX {
            return Err(Unacceptable::Time);
        }
        while let Some((end, nonce)) = self.ends.front().filter(|(end, _)| *end < now_unix_ms).copied() {
            debug_assert!(end < now_unix_ms);
            self.nonces.remove(&nonce);
            self.ends.pop_front();
        }
        if self.nonces.len() >= NONCES_MAX {
            return Err(Unacceptable::TooMany);
        }
        if !self.nonces.insert(signature.nonce) {
            return Err(Unacceptable::Again);
        }
        // Counted from now, not from the time of signing: entries are removed in the order of arrival.
        self.ends.push_back((now_unix_ms + 2 * SIGNED_MS_MAX, signature.nonce));
        Ok(())
    }
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;
    const REQUEST: SignedRequest<'_> = SignedRequest {
        method: "GET",
        target: "/v1/stores/s/versions/1/files/manifest.json?x=1",
        recipient: "node-1.example:6580",
        range: "bytes=0-9",
    };

    #[test]
    fn a_signature_is_valid_for_one_request_only() {
        let key = RequestKey::new("the token of the cluster");
        let signature = key.sign(&REQUEST, b"body", NOW);
        assert!(key.verifies(&REQUEST, &signature));
        assert!(signature.is_of_body(b"body") && !signature.is_of_body(b"other"));
        assert!(!RequestKey::new("the token of another one").verifies(&REQUEST, &signature));
        for other in [
            SignedRequest {
                method: "POST",
                ..REQUEST
            },
            SignedRequest {
                target: "/v1/stores",
                ..REQUEST
            },
            SignedRequest {
                recipient: "attacker.example:6580",
                ..REQUEST
            },
            SignedRequest { range: "", ..REQUEST },
        ] {
            assert!(!key.verifies(&other, &signature), "{other:?}");
        }
        for change in [
            |s: &mut Signature| s.unix_ms += 1,
            |s: &mut Signature| s.nonce[3] ^= 1,
            |s: &mut Signature| s.body[0] ^= 1,
            |s: &mut Signature| s.tag[31] ^= 1,
        ] {
            let mut other = signature.clone();
            change(&mut other);
            assert!(!key.verifies(&REQUEST, &other));
        }
    }

    #[test]
    fn its_text_does_not_contain_the_token() {
        let key = RequestKey::new("the token of the cluster");
        let signature = key.sign(&REQUEST, b"", NOW);
        let text = signature.to_string();
        assert!(Signature::is_meant(&text) && !text.contains("token"));
        assert_eq!(text.parse(), Ok(signature));
        assert_ne!(key.sign(&REQUEST, b"", NOW).to_string(), text);
        for wrong in [
            "",
            "Fondaco ",
            "Bearer x",
            &format!("{text} x"),
            &text[..text.len() - 1],
        ] {
            assert!(wrong.parse::<Signature>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn it_is_accepted_once_and_for_a_minute() {
        let key = RequestKey::new("the token of the cluster");
        let sign = |unix_ms| key.sign(&REQUEST, b"", unix_ms);
        let mut seen = SeenSignatures::default();
        let first = sign(NOW);
        assert_eq!(seen.accept(&first, NOW), Ok(()));
        assert_eq!(seen.accept(&first, NOW + 1), Err(Unacceptable::Again));
        assert_eq!(seen.accept(&first, NOW + SIGNED_MS_MAX), Err(Unacceptable::Again));
        assert_eq!(seen.accept(&first, NOW + SIGNED_MS_MAX + 1), Err(Unacceptable::Time));
        assert_eq!(
            seen.accept(&sign(NOW + SIGNED_MS_MAX + 1), NOW),
            Err(Unacceptable::Time)
        );
        // One with a future time is valid for longer, and remembered for longer.
        let early = sign(NOW + SIGNED_MS_MAX);
        assert_eq!(seen.accept(&early, NOW), Ok(()));
        assert_eq!(seen.accept(&early, NOW + 2 * SIGNED_MS_MAX), Err(Unacceptable::Again));
        let later = NOW + 3 * SIGNED_MS_MAX;
        assert_eq!(seen.accept(&sign(later), later), Ok(()));
        assert_eq!(seen.nonces.len(), 1);
    }
}
