//! The users, and which stores each may read and write: those of the configuration of this process, and those of the
//! cluster, which change while it runs.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};

use arc_swap::ArcSwap;
use argon2::password_hash::{PasswordHash, SaltString};
use argon2::{Argon2, PasswordHasher, PasswordVerifier};

use fondaco_model::StoreName;
use fondaco_protocol::proof::{DEFAULT_USER, End, Introduction, ProofKey};
use fondaco_resp::glob_matches;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

/// How many passwords are hashed at a time: each takes 19 MiB, and some 20 ms of a core.
const HASHED_AT_ONCE_MAX: usize = 2;

/// The users of a process, which may change at any time.
pub struct SharedAccess {
    configured: Vec<User>,
    current: ArcSwap<Access>,
    /// How often the users have changed.
    turn: AtomicU64,
    /// The last right password of each user of the cluster, hashed fast: it is not hashed slowly for each connection.
    verified: Mutex<HashMap<String, Verified>>,
    hashing: Arc<Semaphore>,
}

/// A password that was right.
struct Verified {
    digest: PasswordDigest,
    /// The slow hash that it was compared with.
    hash: Arc<str>,
}

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
    /// The password, as far as it is known.
    pub password: Password,
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

/// A password, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Password {
    /// Its digest, of a user of the configuration: a program with a long and random password, which may also prove that
    /// it knows it without sending it.
    Digest(PasswordDigest),
    /// Its slow hash, of a user of the cluster, in the PHC string format.
    Hash(Arc<str>),
}

/// The slow hash of a password: Argon2id with the parameters that OWASP recommends and a random salt, in the PHC string
/// format. To be called where it may take its time.
///
/// # Errors
/// The system gives no random numbers.
pub fn hash_password(password: &[u8]) -> Result<String, String> {
    let salt: [u8; 16] = ring::rand::generate(&ring::rand::SystemRandom::new())
        .map_err(|_| "the system gives no random numbers".to_owned())?
        .expose();
    let salt = SaltString::encode_b64(&salt).map_err(|error| error.to_string())?;
    let hash = Argon2::default().hash_password(password, &salt);
    hash.map(|hash| hash.to_string()).map_err(|error| error.to_string())
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

    /// The user of the configuration with this name and password. Takes as long for an unknown name as for a wrong
    /// password.
    fn authenticate(&self, name: &[u8], digest: &PasswordDigest) -> Option<&User> {
        let mut found = None;
        for user in &self.users {
            let Password::Digest(known) = &user.password else {
                continue;
            };
            let same: bool = known.0.ct_eq(&digest.0).into();
            if user.name.as_bytes() == name && same {
                found = Some(user);
            }
        }
        found
    }

    /// The user with this name.
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name)
    }
}

impl SharedAccess {
    /// The users of the configuration, and none of the cluster yet.
    pub fn new(configured: Vec<User>) -> Self {
        Self {
            current: ArcSwap::from_pointee(Access::new(configured.clone())),
            configured,
            turn: AtomicU64::new(0),
            verified: Mutex::default(),
            hashing: Arc::new(Semaphore::new(HASHED_AT_ONCE_MAX)),
        }
    }

    /// Takes the users of the cluster. One with the name of a configured user does not count. Without configured users
    /// every client may read and write everything, since nodes have no user for one another.
    pub fn set_users_of_cluster(&self, users: impl IntoIterator<Item = User>) {
        let configured = |name: &str| self.configured.iter().any(|user| user.name == name);
        let mut all = self.configured.clone();
        if !all.is_empty() {
            all.extend(users.into_iter().filter(|user| !configured(&user.name)));
        }
        self.current.store(Arc::new(Access::new(all)));
        self.turn.fetch_add(1, Release);
    }

    /// The users now.
    pub fn load(&self) -> Arc<Access> {
        self.current.load_full()
    }

    /// How often the users have changed.
    #[inline]
    pub fn turn(&self) -> u64 {
        self.turn.load(Acquire)
    }

    /// The user with this name and password; without a name, the default user. A password of the cluster is hashed on
    /// another thread, unless it was right a moment ago.
    pub async fn authenticate(&self, name: Option<&[u8]>, password: &[u8]) -> Option<User> {
        let access = self.load();
        let name = name.unwrap_or(DEFAULT_USER.as_bytes());
        let digest = PasswordDigest::of(password);
        if let Some(user) = access.authenticate(name, &digest) {
            return Some(user.clone());
        }
        let user = std::str::from_utf8(name).ok().and_then(|name| access.user(name))?;
        let Password::Hash(hash) = &user.password else {
            return None;
        };
        self.verify(&user.name, hash, digest, password)
            .await
            .then(|| user.clone())
    }

    /// Whether a password has this slow hash.
    pub async fn verify(&self, name: &str, hash: &Arc<str>, digest: PasswordDigest, password: &[u8]) -> bool {
        let known = self
            .verified
            .lock()
            .get(name)
            .is_some_and(|known| known.hash == *hash && bool::from(known.digest.0.ct_eq(&digest.0)));
        if known {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.hashing).acquire_owned().await else {
            return false;
        };
        let (theirs, password) = (Arc::clone(hash), password.to_vec());
        let compared = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let parsed = PasswordHash::new(&theirs);
            parsed.is_ok_and(|hash| Argon2::default().verify_password(&password, &hash).is_ok())
        });
        let is_right = compared.await.unwrap_or(false);
        if is_right {
            let hash = Arc::clone(hash);
            self.verified.lock().insert(name.to_owned(), Verified { digest, hash });
        }
        is_right
    }
}

impl Default for SharedAccess {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl fmt::Debug for SharedAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedAccess").finish_non_exhaustive()
    }
}

impl Access {
    /// The user of a client that has proved that it knows the user's password, and the server's own proof. Takes as
    /// long for an unknown name as for a wrong proof.
    pub fn prove(&self, introduction: &Introduction<'_>, proof: &[u8]) -> Option<(&User, String)> {
        let known = self.users.iter().find_map(|user| match &user.password {
            Password::Digest(digest) if user.name.as_bytes() == introduction.user => Some((user, &digest.0)),
            _ => None,
        });
        let (user, digest) = known.map_or((None, &[0; 32]), |(user, digest)| (Some(user), digest));
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
            password: Password::Digest(PasswordDigest::of(b"secret")),
            stores: vec!["pymk".into(), "feature-*".into()],
            writes: vec!["cart-*".into()],
            admin: false,
        }])
    }

    #[test]
    fn only_the_right_name_and_password_are_accepted() {
        let access = access();
        let is_known =
            |name: &[u8], password: &[u8]| access.authenticate(name, &PasswordDigest::of(password)).is_some();
        assert!(is_known(b"reader", b"secret"));
        assert!(!is_known(b"reader", b"Secret"));
        assert!(!is_known(b"other", b"secret"));
        assert!(!is_known(b"default", b"secret"));
    }

    #[tokio::test]
    async fn users_of_the_cluster_come_and_go() {
        let shared = SharedAccess::new(access().users.clone());
        let user = |password: &[u8]| User {
            name: "ann".into(),
            password: Password::Hash(hash_password(password).unwrap().into()),
            stores: vec!["pymk".into()],
            writes: Vec::new(),
            admin: false,
        };
        assert!(shared.authenticate(Some(b"ann"), b"one").await.is_none());
        let turn = shared.turn();
        shared.set_users_of_cluster([user(b"one"), user(b"x")].into_iter().take(1));
        assert!(shared.turn() > turn);
        for _ in 0..2 {
            assert!(shared.authenticate(Some(b"ann"), b"one").await.is_some());
            assert!(shared.authenticate(Some(b"ann"), b"two").await.is_none());
            assert!(shared.authenticate(Some(b"reader"), b"secret").await.is_some());
        }
        // Another password takes effect although the former one was right a moment ago.
        shared.set_users_of_cluster([user(b"two")]);
        assert!(shared.authenticate(Some(b"ann"), b"one").await.is_none());
        assert!(shared.authenticate(Some(b"ann"), b"two").await.is_some());
        shared.set_users_of_cluster([]);
        assert!(shared.authenticate(Some(b"ann"), b"two").await.is_none());
    }

    #[tokio::test]
    async fn a_configured_user_is_not_replaced_and_none_leaves_all_open() {
        let shared = SharedAccess::new(access().users.clone());
        let impostor = User {
            name: "reader".into(),
            password: Password::Hash(hash_password(b"mine").unwrap().into()),
            stores: vec!["*".into()],
            writes: vec!["*".into()],
            admin: true,
        };
        shared.set_users_of_cluster([impostor.clone()]);
        assert!(shared.authenticate(Some(b"reader"), b"mine").await.is_none());
        let open = SharedAccess::new(Vec::new());
        open.set_users_of_cluster([impostor]);
        assert!(open.load().is_open());
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
        let user = access.user("reader").unwrap();
        let may_read = |name: &str| user.may_read(&name.parse().unwrap());
        assert!(may_read("pymk") && may_read("feature-x") && !may_read("pymk2") && !may_read("x"));
    }

    #[test]
    fn the_right_to_write_a_store_includes_reading_it() {
        let access = access();
        let user = access.user("reader").unwrap();
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
