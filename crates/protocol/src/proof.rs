//! Mutual authentication: both ends of a connection prove that they know a user's password, without sending it.
//!
//! The address of a node comes from the coordination service. An attacker with write access to that service can
//! announce their own server, and would receive the password. So, over RESP:
//!
//! 1. `FONDACO.NONCE` returns a nonce, and the address that the server advertises: both strings.
//! 2. `FONDACO.PROVE user nonce proof` sends a nonce of the client and its proof. The server replies with its own
//!    proof.
//!
//! A proof is the HMAC-SHA256, with the SHA-256 of the password as its key, of these lines, each ended by a line feed,
//! in hexadecimal digits:
//!
//! ```text
//! fondaco-connection-1
//! which end proves           client or server
//! the server's nonce         32 hexadecimal digits, used once
//! the client's nonce         the same
//! the server's address       as it advertises its RESP port
//! the user's name
//! ```
//!
//! It includes the address, so that a server cannot relay the messages to another server and pose as the client there.

use std::fmt;

use ring::{digest, hmac};

/// Creates and verifies proofs, with a password as the key.
pub struct ProofKey(hmac::Key);

/// A connection whose ends authenticate each other.
#[derive(Debug, Clone, Copy)]
pub struct Introduction<'a> {
    /// The nonce of the server.
    pub server_nonce: &'a [u8],
    /// The nonce of the client.
    pub client_nonce: &'a [u8],
    /// The address that the server advertises.
    pub address: &'a [u8],
    /// The name of the client's user.
    pub user: &'a [u8],
}

/// The user if no name is given.
pub const DEFAULT_USER: &str = "default";

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The end that opened the connection.
    Client,
    /// The end that accepted the connection.
    Server,
}

impl ProofKey {
    /// The key for a password.
    pub fn of_password(password: &[u8]) -> Self {
        Self(hmac::Key::new(
            hmac::HMAC_SHA256,
            digest::digest(&digest::SHA256, password).as_ref(),
        ))
    }

    /// The key for the password with this SHA-256.
    pub fn of_digest(digest: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, digest))
    }

    /// The proof of this end, in hexadecimal digits.
    pub fn prove(&self, end: End, introduction: &Introduction<'_>) -> String {
        hex::encode(hmac::sign(&self.0, &introduction.text(end)))
    }

    /// Whether this is the proof of that end. Takes the same time for every wrong proof.
    pub fn verifies(&self, end: End, introduction: &Introduction<'_>, proof: &[u8]) -> bool {
        let mut tag = [0; 32];
        hex::decode_to_slice(proof, &mut tag).is_ok() && hmac::verify(&self.0, &introduction.text(end), &tag).is_ok()
    }
}

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey(…)")
    }
}

impl Introduction<'_> {
    fn text(&self, end: End) -> Vec<u8> {
        let end: &[u8] = match end {
            End::Client => b"client",
            End::Server => b"server",
        };
        // The name comes last, because only the name may contain a line feed.
        let lines = [
            b"fondaco-connection-1",
            end,
            self.server_nonce,
            self.client_nonce,
            self.address,
            self.user,
        ];
        lines
            .into_iter()
            .flat_map(|line| [line, b"\n"])
            .flatten()
            .copied()
            .collect()
    }
}

/// A random nonce that cannot be predicted: 32 hexadecimal digits.
///
/// # Errors
/// The system provides no random numbers.
pub fn nonce() -> Result<String, ring::error::Unspecified> {
    let bytes: [u8; 16] = ring::rand::generate(&ring::rand::SystemRandom::new())?.expose();
    Ok(hex::encode(bytes))
}

/// Whether the text has the form of a nonce.
pub fn is_nonce(text: &[u8]) -> bool {
    text.len() == 32 && text.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTRODUCTION: Introduction<'_> = Introduction {
        server_nonce: b"00000000000000000000000000000001",
        client_nonce: b"00000000000000000000000000000002",
        address: b"node-1:6500",
        user: b"node",
    };

    #[test]
    fn a_proof_is_valid_for_one_connection_and_user_only() {
        let key = ProofKey::of_password(b"secret");
        let proof = key.prove(End::Client, &INTRODUCTION);
        assert!(key.verifies(End::Client, &INTRODUCTION, proof.as_bytes()));
        let digest = digest::digest(&digest::SHA256, b"secret");
        let same = ProofKey::of_digest(digest.as_ref().try_into().unwrap());
        assert!(same.verifies(End::Client, &INTRODUCTION, proof.as_bytes()));
        assert!(!key.verifies(End::Server, &INTRODUCTION, proof.as_bytes()));
        assert!(!ProofKey::of_password(b"Secret").verifies(End::Client, &INTRODUCTION, proof.as_bytes()));
        let other_nonce = b"00000000000000000000000000000003";
        for other in [
            Introduction {
                server_nonce: other_nonce,
                ..INTRODUCTION
            },
            Introduction {
                client_nonce: other_nonce,
                ..INTRODUCTION
            },
            Introduction {
                address: b"node-2:6500",
                ..INTRODUCTION
            },
            Introduction {
                user: b"other",
                ..INTRODUCTION
            },
        ] {
            assert!(!key.verifies(End::Client, &other, proof.as_bytes()), "{other:?}");
        }
        for wrong in ["", "00", &proof[1..], &proof.replace(|_| true, "0"), &"é".repeat(32)] {
            assert!(!key.verifies(End::Client, &INTRODUCTION, wrong.as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn nonces_differ() {
        let (one, two) = (nonce().unwrap(), nonce().unwrap());
        assert!(is_nonce(one.as_bytes()) && one != two);
        assert!(!is_nonce(b"") && !is_nonce(&[b'g'; 32]));
    }
}
