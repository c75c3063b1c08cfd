//! Signatures of what a process has given out and wants to recognise: the sessions of browsers.

use ring::hmac;

/// A key that only processes with the same secret have.
#[derive(Clone)]
pub struct SessionKey(hmac::Key);

impl SessionKey {
    /// The key that follows from a secret.
    pub fn new(secret: &str) -> Self {
        // Another key than that of requests, which follows from the same secret.
        let parent = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let tag = hmac::sign(&parent, b"fondaco sessions of browsers");
        Self(hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref()))
    }

    /// The signature of a text, as hexadecimal digits.
    pub fn sign(&self, text: &str) -> String {
        hex::encode(hmac::sign(&self.0, text.as_bytes()))
    }

    /// Whether a text has this signature. Takes the same time for every wrong one.
    pub fn verifies(&self, text: &str, tag: &str) -> bool {
        hex::decode(tag).is_ok_and(|tag| hmac::verify(&self.0, text.as_bytes(), &tag).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_signature_is_recognised() {
        let (key, other) = (SessionKey::new("secret"), SessionKey::new("other"));
        let tag = key.sign("text");
        assert!(key.verifies("text", &tag) && SessionKey::new("secret").verifies("text", &tag));
        assert!(!key.verifies("texts", &tag) && !other.verifies("text", &tag));
        assert!(!key.verifies("text", "") && !key.verifies("text", "zz") && !key.verifies("text", &tag[2..]));
    }
}
