//! Certificates for servers that speak TLS.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

/// A self-signed certificate and its key, in files.
pub struct Certificate {
    /// The file with the certificate.
    pub path: PathBuf,
    /// The file with the key.
    pub key: PathBuf,
}

impl Certificate {
    /// Makes the files `NAME.pem` and `NAME.key` with a certificate for these hosts.
    pub fn make(dir: &Path, name: &str, hosts: &[&str]) -> Self {
        Self::write(dir, name, hosts, IsCa::NoCa)
    }

    /// The same, with a certificate that is its own authority, such as `openssl req -x509` makes.
    pub fn make_authority(dir: &Path, name: &str, hosts: &[&str]) -> Self {
        Self::write(dir, name, hosts, IsCa::Ca(BasicConstraints::Unconstrained))
    }

    fn write(dir: &Path, name: &str, hosts: &[&str], is_ca: IsCa) -> Self {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("the hosts are valid");
        params.is_ca = is_ca;
        let key = KeyPair::generate().expect("keys can be made");
        let made = params.self_signed(&key).expect("the parameters are valid");
        let files = Self {
            path: dir.join(format!("{name}.pem")),
            key: dir.join(format!("{name}.key")),
        };
        fs::write(&files.path, made.pem()).expect("the directory exists");
        fs::write(&files.key, key.serialize_pem()).expect("the directory exists");
        files
    }

    /// The section of a configuration file that makes a server use it.
    pub fn section(&self) -> String {
        format!("[tls]\ncertificate = {:?}\nkey = {:?}\n", self.path, self.key)
    }
}
