//! TLS for `rediss://` and `valkeys://`, driven without blocking.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use nix::poll::PollFlags;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use super::super::{Access, ErrorKind, StoreError};
use super::errors;
use super::socket::Socket;
use super::stream::{Step, step};
use crate::model::escape;

/// How to prove who we are and to find out who the server is.
#[derive(Clone)]
pub(super) struct TlsSettings {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsSettings {
    /// Reads the certificates that `access` names, or the system's.
    pub(super) fn new(host: &str, access: &Access) -> Result<Self, StoreError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| unfit("the host's name cannot be in a certificate".into()))?;
        // The provider is named here: a default would depend on what else is linked.
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = if access.insecure {
            Arc::new(Unverified(Arc::clone(&provider)))
        } else {
            WebPkiServerVerifier::builder_with_provider(
                roots(access)?.into(),
                Arc::clone(&provider),
            )
            .build()
            .map_err(|error| unfit(error.to_string()))?
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unfit(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match (&access.cert, &access.key) {
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(|error| unfit(format!("{}: {error}", cert.display())))?,
            (None, None) => builder.with_no_client_auth(),
            _ => return Err(unfit("--cert and --key go together".into())),
        };
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }
}

/// A socket with TLS.
pub(super) struct TlsStream {
    socket: Socket,
    tls: ClientConnection,
}

impl TlsStream {
    pub(super) fn new(socket: Socket, settings: &TlsSettings) -> Result<Self, StoreError> {
        let tls = ClientConnection::new(Arc::clone(&settings.config), settings.name.clone())
            .map_err(|error| of_tls(&error))?;
        Ok(Self { socket, tls })
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn wants(&self) -> PollFlags {
        if self.tls.wants_write() {
            PollFlags::POLLIN | PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        }
    }

    pub(super) fn queue(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.tls
            .writer()
            .write_all(bytes)
            .map_err(|error| errors::of_io(&error))
    }

    /// Shakes hands if that is still to be done, and writes what is queued.
    pub(super) fn flush(&mut self) -> Result<Step<()>, StoreError> {
        loop {
            if self.tls.wants_write() {
                if self.write_records()? == Step::Blocked {
                    return Ok(Step::Blocked);
                }
            } else if self.tls.is_handshaking() {
                match self.read_records()? {
                    Step::Done(0) => return Err(errors::closed()),
                    Step::Done(_) => {}
                    Step::Blocked => return Ok(Step::Blocked),
                }
            } else {
                return Ok(Step::Done(()));
            }
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Step<usize>, StoreError> {
        loop {
            match self.tls.reader().read(into) {
                Ok(count) => return Ok(Step::Done(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Closed without a word of TLS, as servers do: an end like any other here.
                Err(_) => return Ok(Step::Done(0)),
            }
            match self.read_records()? {
                Step::Done(0) => return Ok(Step::Done(0)),
                Step::Done(_) => {}
                Step::Blocked => return Ok(Step::Blocked),
            }
        }
    }

    fn read_records(&mut self) -> Result<Step<usize>, StoreError> {
        let read = step(self.tls.read_tls(&mut self.socket))?;
        if let Err(error) = self.tls.process_new_packets() {
            // Tells the server why; it may be gone already.
            let _ = self.tls.write_tls(&mut self.socket);
            return Err(of_tls(&error));
        }
        Ok(read)
    }

    fn write_records(&mut self) -> Result<Step<usize>, StoreError> {
        match step(self.tls.write_tls(&mut self.socket)) {
            // A server that refuses our certificate says so before it closes.
            Err(reset) => Err(self.read_records().err().unwrap_or(reset)),
            other => other,
        }
    }
}

/// The certificates of the authorities that we trust.
fn roots(access: &Access) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = &access.cacert {
        for certificate in certificates(file)? {
            roots
                .add(certificate)
                .map_err(|error| unfit(format!("{}: {error}", file.display())))?;
        }
    } else {
        let (_, _) =
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err(unfit(
            "no certificate authority to trust; see --cacert".into(),
        ));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    match found {
        Ok(found) if found.is_empty() => {
            Err(unfit(format!("{}: no certificate in it", file.display())))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(unfit(format!("{}: {error}", file.display()))),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, StoreError> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| unfit(format!("{}: {error}", file.display())))
}

fn unfit(text: String) -> StoreError {
    StoreError::new(ErrorKind::Foreign, text)
}

/// A certificate that is not good enough, theirs or ours, will not be better the next time.
fn of_tls(error: &Error) -> StoreError {
    let refused = match error {
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => true,
        Error::AlertReceived(alert) => matches!(
            alert,
            AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRequired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                | AlertDescription::HandshakeFailure
        ),
        _ => false,
    };
    let kind = if refused {
        ErrorKind::Refused
    } else {
        ErrorKind::NoAnswer
    };
    StoreError::new(kind, format!("TLS: {}", escape(&error.to_string(), 200)))
}

/// `--insecure`: any certificate will do.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
