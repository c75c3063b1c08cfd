//! Stands for the crate `openssl-sys` of the registry: rdkafka-sys takes nothing from it but the libraries to link.
//!
//! These are the system's libssl and libcrypto. There is no interface to OpenSSL here: what needs one has to take the
//! crate of the registry, by removing the section `[patch.crates-io]` of the workspace.
