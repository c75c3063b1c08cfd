//! The users, and which stores each may read and write.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use fondaco_model::StoreName;
use fondaco_protocol::proof::{DEFAULT_USER, End, Introduction, ProofKey};
use fondaco_resp::glob_matches;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The users of a node. Without any, every client may read and write everything.
#[derive(Debug, Clone, Default)]
pub struct Access {
    users: Vec<User>,
}

/// A user.
#[derive(Debug, Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// The SHA-256 of the password.
    pub password: PasswordDigest,
    /// Patterns of the names of the stores that the user may read, as in `KEYS`; `*` is all.
    pub stores: Vec<String>,
    /// Patterns of the names of the stores that the user may write, which the user may read, too.
    pub writes: Vec<String>,
    /// Whether the user may change settings and drop other clients.
    pub admin: bool,
}

/// How a server reaches the other nodes of its cluster, for keys that it does not hold.
#[derive(Clone, Default)]
pub struct PeerAccess {
    /// The user name that it sends to them, one that may read and write all stores; `None` is the default user.
    pub user: Option<String>,
    /// The user's password, if the nodes ask for one.
    pub password: Option<String>,
    /// How to speak TLS to them, if they do.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The zone of this process.
    pub zone: Option<String>,
}

impl fmt::Debug for PeerAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerAccess")
            .field("user", &self.user)
            .field("zone", &self.zone)
            .finish_non_exhaustive()
    }
}

/// The SHA-256 of a password, as 64 hexadecimal digits, as Redis stores it. Passwords are for programs, so they should
/// be long and random; a slow hash for each new connection would make authentication the cheapest way to overload a
/// node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PasswordDigest([u8; 32]);

impl PasswordDigest {
    /// The digest of a password.
    pub fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }
}

impl fmt::Debug for PasswordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordDigest(…)")
    }
}

impl FromStr for PasswordDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits: Vec<u8> = text
            .chars()
            .map_while(|digit| digit.to_digit(16).map(|digit| digit as u8))
            .collect();
        match <[u8; 64]>::try_from(digits) {
            Ok(digits) if text.len() == 64 => {
                Ok(Self(std::array::from_fn(|at| digits[2 * at] << 4 | digits[2 * at + 1])))
            }
            _ => Err("invalid password digest: expected the SHA-256 of the password as 64 hexadecimal digits".into()),
        }
    }
}

impl Access {
    /// Access for these users only; for every client if the list is empty.
    pub fn new(users: Vec<User>) -> Self {
        Self { users }
    }

    /// Whether clients need not authenticate.
    pub fn is_open(&self) -> bool {
        self.users.is_empty()
    }

    /// All users.
    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// The name of the user, if there is such a user; without a name, the default user.
    pub fn known_name(&self, name: Option<&[u8]>) -> Option<&str> {
        let name = name.unwrap_or(DEFAULT_USER.as_bytes());
        let known = self.users.iter().find(|user| user.name.as_bytes() == name);
        known.map(|user| user.name.as_str())
    }

    /// The user with this name and password. Takes as long for an unknown name as for a wrong password.
    pub fn authenticate(&self, name: Option<&[u8]>, password: &[u8]) -> Option<&User> {
        let name = name.unwrap_or(DEFAULT_USER.as_bytes());
        let digest = PasswordDigest::of(password);
        let mut found = None;
        for user in &self.users {
            let same: bool = user.password.0.ct_eq(&digest.0).into();
            if user.name.as_bytes() == name && same {
                found = Some(user);
            }
        }
        found
    }
}

impl Access {
    /// The user of a client that has proved that it knows the user's password, and the server's own proof. Takes as
    /// long for an unknown name as for a wrong proof.
    pub(crate) fn prove(&self, introduction: &Introduction<'_>, proof: &[u8]) -> Option<(&User, String)> {
        let user = self.users.iter().find(|user| user.name.as_bytes() == introduction.user);
        let digest = user.map_or(&[0; 32], |user| &user.password.0);
        let key = ProofKey::of_digest(digest);
        let is_proved = key.verifies(End::Client, introduction, proof);
        let own = key.prove(End::Server, introduction);
        user.filter(|_| is_proved).map(|user| (user, own))
    }
}

impl User {
    /// Whether the user may read a store.
    pub fn may_read(&self, store: &StoreName) -> bool {
        is_named(store, &self.stores) || self.may_write(store)
    }

    /// Whether the user may write a store. A writer may read it too: commands like `SET` with `GET` and `APPEND` return
    /// the old value or its length.
    pub fn may_write(&self, store: &StoreName) -> bool {
        is_named(store, &self.writes)
    }
}

fn is_named(store: &StoreName, patterns: &[String]) -> bool {
    let name = store.as_str().as_bytes();
    let mut patterns = patterns.iter();
    patterns.any(|pattern| glob_matches(pattern.as_bytes(), name, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::new(vec![User {
            name: "reader".into(),
            password: PasswordDigest::of(b"secret"),
            stores: vec!["pymk".into(), "feature-*".into()],
            writes: vec!["cart-*".into()],
            admin: false,
        }])
    }

    #[test]
    fn only_the_right_name_and_password_are_accepted() {
        let access = access();
        assert!(access.authenticate(Some(b"reader"), b"secret").is_some());
        assert!(access.authenticate(Some(b"reader"), b"Secret").is_none());
        assert!(access.authenticate(Some(b"other"), b"secret").is_none());
        assert!(access.authenticate(None, b"secret").is_none());
    }

    #[test]
    fn a_valid_proof_is_accepted_and_answered_by_a_proof() {
        let access = access();
        let introduction = Introduction {
            server_nonce: b"1",
            client_nonce: b"2",
            address: b"node-1:6500",
            user: b"reader",
        };
        let key = ProofKey::of_password(b"secret");
        let proof = key.prove(End::Client, &introduction);
        let (user, own) = access.prove(&introduction, proof.as_bytes()).unwrap();
        assert_eq!(user.name, "reader");
        assert!(key.verifies(End::Server, &introduction, own.as_bytes()));
        let wrong = ProofKey::of_password(b"Secret").prove(End::Client, &introduction);
        assert!(access.prove(&introduction, wrong.as_bytes()).is_none());
        // The key of an unknown user must not be guessable.
        let nobody = Introduction {
            user: b"nobody",
            ..introduction
        };
        let proof = ProofKey::of_digest(&[0; 32]).prove(End::Client, &nobody);
        assert!(access.prove(&nobody, proof.as_bytes()).is_none());
    }

    #[test]
    fn a_user_reads_the_stores_that_a_pattern_names() {
        let access = access();
        let user = access.authenticate(Some(b"reader"), b"secret").unwrap();
        let may_read = |name: &str| user.may_read(&name.parse().unwrap());
        assert!(may_read("pymk") && may_read("feature-x") && !may_read("pymk2") && !may_read("x"));
    }

    #[test]
    fn the_right_to_write_a_store_includes_reading_it() {
        let access = access();
        let user = access.authenticate(Some(b"reader"), b"secret").unwrap();
        let rights = |name: &str| {
            let name = name.parse().unwrap();
            (user.may_read(&name), user.may_write(&name))
        };
        assert_eq!(rights("cart-1"), (true, true));
        assert_eq!(rights("pymk"), (true, false));
        assert_eq!(rights("other"), (false, false));
    }

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        let text = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert_eq!(text.parse::<PasswordDigest>().unwrap(), PasswordDigest::of(b"secret"));
        for text in ["", "2bb8", &"g".repeat(64), &"é".repeat(32), &"0".repeat(65)] {
            assert!(text.parse::<PasswordDigest>().is_err(), "{text:?}");
        }
    }
}
