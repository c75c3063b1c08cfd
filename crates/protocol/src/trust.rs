//! TLS to servers whose certificates, or the authorities of these, are in a file.
//!
//! `openssl req -x509` creates the certificate of an authority, and servers use it as their own. The standard verifier
//! refuses that. Here a certificate that equals one in the file is accepted too, if it is valid now and for the name of
//! the server, as curl and the clients of Redis do. The user who configured it trusts it: there is no chain to check.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Why certificates cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The input is not a PEM file of certificates.
    #[error("it is not a PEM file of certificates: {0}")]
    NotPem(String),
    /// The file contains no certificate.
    #[error("it contains no certificate: use a PEM file with -----BEGIN CERTIFICATE-----")]
    Empty,
    /// A certificate in it cannot be used.
    #[error("a certificate in it cannot be trusted: {0}")]
    Unusable(#[source] rustls::Error),
}

/// A configuration that trusts only the certificates in this PEM text: as authorities, and as certificates of servers.
///
/// # Errors
/// The text contains no certificate, or one that cannot be used.
pub fn trusting(pem: &[u8]) -> Result<Arc<ClientConfig>, TrustError> {
    let named = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let named = named.map_err(|error| TrustError::NotPem(error.to_string()))?;
    if named.is_empty() {
        return Err(TrustError::Empty);
    }
    let mut roots = RootCertStore::empty();
    for certificate in &named {
        roots.add(certificate.clone()).map_err(TrustError::Unusable)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable =
        |error: rustls::client::VerifierBuilderError| TrustError::Unusable(rustls::Error::General(error.to_string()));
    let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(unusable)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TrustError::Unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NamedVerifier { usual, named }))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Verifies as usual, and accepts a configured certificate that is refused only because it is that of an authority.
#[derive(Debug)]
struct NamedVerifier {
    usual: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for NamedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self
            .usual
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The certificate is valid now: the usual verifier checks times first, which a test verifies.
            Err(error) if is_authority(&error) && self.named.iter().any(|named| named == end_entity) => {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

/// Whether a certificate was refused because it is that of an authority.
fn is_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else {
        return false;
    };
    other.0.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity)
}

/// Why the certificate of a server is refused, for people, if an error or one of its causes says that it is.
pub fn refused_certificate(error: &(dyn Error + 'static)) -> Option<String> {
    // As clients of Redis share errors.
    if let Some(shared) = error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        return refused_certificate(&**shared);
    }
    if let Some(wrapped) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)
        && let Some(reason) = refused_certificate(wrapped)
    {
        return Some(reason);
    }
    let Some(refused @ rustls::Error::InvalidCertificate(reason)) = error.downcast_ref() else {
        return error.source().and_then(refused_certificate);
    };
    Some(match reason {
        _ if is_authority(refused) => "its certificate is self-signed, and is not among the trusted ones".to_owned(),
        CertificateError::UnknownIssuer => "its certificate was issued by no trusted authority".to_owned(),
        CertificateError::NotValidForName
        | CertificateError::NotValidForNameContext { .. }
        | CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => reason.to_string(),
        CertificateError::Revoked => "its certificate is revoked".to_owned(),
        _ => "its certificate is damaged, or may not be used by a server".to_owned(),
    })
}

/// An error of a connection; one for a certificate that is refused says so in words.
pub fn in_words(error: io::Error) -> io::Error {
    match refused_certificate(&error) {
        Some(reason) => io::Error::new(error.kind(), reason),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    /// A certificate like those of `openssl req -x509`, which is its own authority.
    fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> rcgen::Certificate {
        let mut params = CertificateParams::new(["node.example".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn verify(trusted: &rcgen::Certificate, shown: &rcgen::Certificate, name: &str) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = NamedVerifier {
            usual: usual.build().unwrap(),
            named: vec![trusted.der().clone()],
        };
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let verified = verifier.verify_server_cert(shown.der(), &[], &name, &[], UnixTime::now());
        verified.map(drop)
    }

    #[test]
    fn a_configured_authority_may_be_the_server_itself() {
        let certificate = self_signed(|_| {});
        assert_eq!(verify(&certificate, &certificate, "node.example"), Ok(()));
        assert_eq!(verify(&certificate, &certificate, "127.0.0.1"), Ok(()));
        assert!(trusting(certificate.pem().as_bytes()).is_ok());
    }

    #[test]
    fn it_is_refused_for_another_name_and_another_certificate() {
        let certificate = self_signed(|_| {});
        let error = verify(&certificate, &certificate, "other.example").unwrap_err();
        assert!(error.to_string().contains("not valid for name"), "{error}");
        let message = refused_certificate(&io::Error::other(error)).unwrap();
        assert!(message.contains("not valid for name \"other.example\""), "{message}");
        // The same names, with another key.
        let other = self_signed(|_| {});
        let error = verify(&certificate, &other, "node.example").unwrap_err();
        let message = refused_certificate(&error).unwrap();
        assert!(message.contains("self-signed"), "{message}");
        assert_eq!(refused_certificate(&io::Error::other("no certificate")), None);
    }

    #[test]
    fn it_is_refused_before_and_after_its_time() {
        let now = std::time::SystemTime::now();
        let day = Duration::from_secs(86_400);
        let expired = self_signed(|params| {
            params.not_before = (now - 3 * day).into();
            params.not_after = (now - day).into();
        });
        let error = verify(&expired, &expired, "node.example").unwrap_err();
        assert!(error.to_string().contains("expired"), "{error}");
        let early = self_signed(|params| {
            params.not_before = (now + day).into();
            params.not_after = (now + 3 * day).into();
        });
        let error = verify(&early, &early, "node.example").unwrap_err();
        assert!(error.to_string().contains("not valid yet"), "{error}");
    }

    #[test]
    fn files_without_a_certificate_are_refused() {
        assert!(matches!(trusting(b""), Err(TrustError::Empty)));
        assert!(matches!(trusting(b"certificate"), Err(TrustError::Empty)));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(trusting(broken.as_bytes()), Err(TrustError::Unusable(_))));
    }
}
