//! Where hints, or the chunks of a snapshot, are: a path, or a URL, which is downloaded by HTTPS.
//!
//! They need no trust, so that the connection protects only against wasted hours and prying eyes. Therefore
//! plain HTTP is accepted where the connection cannot be tampered with: to this machine, and to an onion
//! service. Redirects are followed from HTTPS to HTTPS only.

use engine::{Error, FileSource};
use std::{net::SocketAddr, path::PathBuf, str::FromStr};

/// The value of `--hints`, or a source of `snapshot fetch`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HintLocation {
    /// A file or folder on this machine.
    File(PathBuf),
    /// A URL that may be downloaded.
    Url(String),
}

impl HintLocation {
    /// Checks that no name server would be asked for the name of an onion service.
    pub fn check(&self, proxy: Option<SocketAddr>) -> Result<(), Error> {
        match self {
            Self::Url(url) if proxy.is_none() && is_onion(host_of_url(url)) => {
                Err(Error::usage(format!("{url}: onion services are reached through --proxy only")))
            }
            _ => Ok(()),
        }
    }

    /// Returns it for the engine. All connections go through `proxy`, if there is one, and it resolves the
    /// names.
    #[cfg_attr(not(feature = "hints-url"), expect(unused_variables, reason = "nothing is downloaded"))]
    pub fn source(&self, proxy: Option<SocketAddr>) -> FileSource {
        match self {
            Self::File(file) => FileSource::Path(file.clone()),
            #[cfg(feature = "hints-url")]
            Self::Url(url) => FileSource::Remote(std::sync::Arc::new(download::Url::new(url.clone(), proxy))),
            // This build has refused the URL.
            #[cfg(not(feature = "hints-url"))]
            Self::Url(url) => FileSource::Path(url.into()),
        }
    }
}

impl FromStr for HintLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(Self::File(text.into())) };
        let host = host_of_url(text);
        match scheme.to_ascii_lowercase().as_str() {
            "https" => {}
            "http" if is_private(host) => {}
            "http" => {
                let why = "is not encrypted: give an https URL, or download the file yourself";
                return Err(format!("http {why}; http is accepted for onion services and for this machine"));
            }
            _ => return Err("give the path of a file, or an https URL".to_owned()),
        }
        if host.to_ascii_lowercase().ends_with(".i2p") {
            return Err("nothing can be downloaded through an I2P router".to_owned());
        }
        if host.is_empty() || rest.contains('@') || text.chars().any(|c| c.is_whitespace() || c.is_control())
        {
            return Err("this is not a URL of the form https://HOST[:PORT]/PATH".to_owned());
        }
        if cfg!(feature = "hints-url") {
            Ok(Self::Url(text.to_owned()))
        } else {
            Err("this build cannot download (feature hints-url): download the file yourself".to_owned())
        }
    }
}

fn host_of_url(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
        Some((v6, _)) => v6,
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// Whether nobody between this program and the host can read or change what is sent.
fn is_private(host: &str) -> bool {
    let is_loopback = host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback || host.eq_ignore_ascii_case("localhost") || is_onion(host)
}

fn is_onion(host: &str) -> bool {
    host.to_ascii_lowercase().ends_with(".onion")
}

#[cfg(feature = "hints-url")]
mod download {
    use engine::{Remote, RemoteBody};
    use std::{
        io,
        net::SocketAddr,
        sync::{Arc, OnceLock},
        time::Duration,
    };
    use ureq::{
        Agent, Error, Proxy,
        tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
    };

    /// Time for resolving a name and connecting; through Tor it may take as long.
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
    /// Time without a byte.
    const READ_TIMEOUT: Duration = Duration::from_secs(60);
    /// The status of an answer that has only the range that was asked for.
    const PARTIAL_CONTENT: u16 = 206;
    const MAX_REDIRECTS: u32 = 5;

    /// A file, or a folder whose files are below the URL. Connections stay open from file to file.
    #[derive(Debug)]
    pub struct Url {
        url: String,
        proxy: Option<SocketAddr>,
        agent: OnceLock<Agent>,
    }

    impl Url {
        pub fn new(url: String, proxy: Option<SocketAddr>) -> Self {
            Self { url, proxy, agent: OnceLock::new() }
        }
    }

    impl Remote for Url {
        fn name(&self) -> &str {
            &self.url
        }

        fn open(&self, file: &str, from: u64) -> io::Result<RemoteBody> {
            let agent = match self.agent.get() {
                Some(agent) => agent,
                None => {
                    let new = agent(&self.url, self.proxy)?;
                    self.agent.get_or_init(|| new)
                }
            };
            match file {
                "" => get(agent, &self.url, from),
                file => get(agent, &format!("{}/{file}", self.url.trim_end_matches('/')), from),
            }
        }
    }

    pub fn agent(url: &str, proxy: Option<SocketAddr>) -> io::Result<Agent> {
        let is_https = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        let proxy = proxy.map(|address| Proxy::new(&format!("socks5h://{address}")));
        let mut config = Agent::config_builder()
            // Also without a proxy: otherwise variables of the environment would name one.
            .proxy(proxy.transpose().map_err(Error::into_io)?)
            .https_only(is_https)
            .max_redirects(if is_https { MAX_REDIRECTS } else { 0 })
            .user_agent(concat!("peregrine/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(READ_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT));
        if is_https {
            config = config.tls_config(tls()?);
        }
        Ok(config.build().new_agent())
    }

    /// Trusts the authorities that the system trusts.
    fn tls() -> io::Result<TlsConfig> {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            let text = "no certificate authorities are found on this machine: install them (most systems \
                        call the package ca-certificates), or name a file of them in SSL_CERT_FILE";
            return Err(io::Error::other(text));
        }
        let roots = found.certs.iter().map(|root| Certificate::from_der(root).to_owned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::Specific(Arc::new(roots.collect())))
            .build())
    }

    fn redirected() -> io::Error {
        io::Error::other("the server redirects to another address; give that one")
    }

    fn get(agent: &Agent, url: &str, from: u64) -> io::Result<RemoteBody> {
        let mut request = agent.get(url);
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        let response = request.call().map_err(|error| match error {
            Error::StatusCode(code) => io::Error::other(format!("the server answered with status {code}")),
            Error::RequireHttpsOnly(to) => {
                io::Error::other(format!("the server redirects to {to}, which is not https"))
            }
            Error::TooManyRedirects => redirected(),
            error => error.into_io(),
        })?;
        if response.status().is_redirection() {
            return Err(redirected());
        }
        let from = if response.status().as_u16() == PARTIAL_CONTENT { from } else { 0 };
        let body = response.into_body();
        let len = body.content_length().map(|len| from + len);
        Ok(RemoteBody { from, len, bytes: Box::new(body.into_reader()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "hints-url")]
    #[test]
    fn a_server_that_sends_nothing_is_left_after_a_minute() {
        let agent = download::agent("http://localhost/hints", None).unwrap();
        let (config, minute) = (agent.config(), Some(std::time::Duration::from_secs(60)));
        let phases = config.timeouts();
        assert_eq!([phases.resolve, phases.connect, phases.recv_response], [minute; 3]);
        assert_eq!(config.timeout_per_read(), minute);
    }

    #[test]
    fn files_and_urls_are_told_apart() {
        for file in ["hints", "../a/b.xz", "./https", "C:hints"] {
            assert_eq!(file.parse(), Ok(HintLocation::File(file.into())));
        }
        for url in [
            "https://example.org/hints.xz",
            "HTTPS://example.org:8443/h?x=1",
            "http://127.0.0.1:80/hints",
            "http://[::1]:8000/hints",
            "http://localhost/hints",
            "http://abcdefgh.onion/hints",
        ] {
            let expected = cfg!(feature = "hints-url").then(|| HintLocation::Url(url.to_owned()));
            assert_eq!(url.parse::<HintLocation>().ok(), expected, "{url}");
        }
        let (onion, proxy) = ("https://abcd.ONION/hints".to_owned(), "127.0.0.1:9050".parse().ok());
        let onion = HintLocation::Url(onion);
        assert!(onion.check(proxy).is_ok());
    }
}
