//! The rule by which a port refuses requests from pages of other web sites: browsers report the origin of a page, and
//! ask before they send anything that a form could not.

use crate::HEADER_PREFIX;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use std::net::IpAddr;

/// Media types that forms of any web page may send without a preflight request.
const OF_FORMS: [&str; 3] = ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"];
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Refusal of a request before it reaches a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the request names no host, or more than one")]
    NoHost,
    #[error(
        "{0:?} is not a name of this server: use its address, or start the server with --host-name and \
         this name"
    )]
    OtherHost(String),
    #[error("the request is from a page of another origin, {0:?}")]
    OtherOrigin(String),
    #[error("the request is from a page of another web site")]
    OtherSite,
    #[error(
        "a {0} request needs the header content-type with application/json or application/octet-stream, or \
         the header sailfish-request"
    )]
    Unmarked(Method),
    #[error("too many connections are open: only /healthz is answered")]
    Full,
}

impl Refusal {
    /// Returns the status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoHost => StatusCode::BAD_REQUEST,
            Self::OtherHost(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::OtherOrigin(_) | Self::OtherSite => StatusCode::FORBIDDEN,
            Self::Unmarked(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Full => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The names of a port, besides loopback and the local address of a connection: a name that foreign DNS gives this
/// machine is not one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// Makes the rule from the operator's names, without ports.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Checks a request that arrived at the address `local`.
    pub fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        local: IpAddr,
    ) -> Result<(), Refusal> {
        let host = host_of(uri, headers)?;
        let name = without_port(host);
        if !self.is_own(name, local) {
            return Err(Refusal::OtherHost(shortened(host)));
        }
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or("?");
            let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            // The port counts too: other listeners on this machine are other origins.
            if !authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)) {
                return Err(Refusal::OtherOrigin(shortened(origin)));
            }
        }
        for site in headers.get_all(SEC_FETCH_SITE) {
            if !matches!(site.as_bytes(), b"same-origin" | b"none") {
                return Err(Refusal::OtherSite);
            }
        }
        let only_looks = matches!(*method, Method::GET | Method::HEAD);
        match only_looks || is_marked(headers) {
            true => Ok(()),
            false => Err(Refusal::Unmarked(method.clone())),
        }
    }

    fn is_own(&self, name: &str, local: IpAddr) -> bool {
        if is_loopback_name(name) || self.0.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            return true;
        }
        let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
        address.is_ok_and(|address| address.to_canonical() == local.to_canonical())
    }
}

/// Returns whether a host without its port always means this machine.
fn is_loopback_name(name: &str) -> bool {
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the host of a request, with its port.
fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Refusal> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty());
    let host = host.filter(|_| hosts.next().is_none()).ok_or(Refusal::NoHost)?;
    match uri.authority() {
        // Readers use the request line; both must agree.
        Some(authority) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err(Refusal::OtherHost(shortened(authority.as_str())))
        }
        _ => Ok(host),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // The colons of an IPv6 address are within brackets.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// Returns whether browsers send the request from a page of another origin only after a preflight request.
fn is_marked(headers: &HeaderMap) -> bool {
    if headers.keys().any(|name| name.as_str().starts_with(HEADER_PREFIX)) {
        return true;
    }
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let given = types.next().and_then(|given| given.to_str().ok()).filter(|_| types.next().is_none());
    let essence = given.and_then(|given| given.split(';').next()).map(str::trim);
    // With a comma, browsers and servers may read different types.
    essence.is_some_and(|essence| {
        let is_type = essence.contains('/') && !given.unwrap_or_default().contains(',');
        is_type && !OF_FORMS.iter().any(|of_forms| of_forms.eq_ignore_ascii_case(essence))
    })
}

fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::{HostNames, Refusal};
    use axum::http::{HeaderMap, HeaderName, Method, Uri};
    use std::net::IpAddr;

    fn check(method: Method, lines: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().expect("a name");
            headers.append(name, value.parse().expect("a value"));
        }
        let local: IpAddr = "10.0.0.5".parse().expect("an address");
        let names = HostNames::new(["DB1.example".to_string()]);
        names.check(&method, &Uri::from_static("/v1/jobs"), &headers, local)
    }

    #[test]
    fn host_is_loopback_its_address_or_given_name() {
        let own = ["localhost", "LOCALHOST:7070", "127.0.0.1:7070", "127.8.9.1", "[::1]:7070", "[::1]"];
        let given = ["10.0.0.5:1", "[::ffff:10.0.0.5]:7070", "db1.example:7070", "db1.EXAMPLE"];
        for host in own.iter().chain(&given) {
            assert_eq!(check(Method::GET, &[("host", host)]), Ok(()), "{host}");
        }
        for host in
            ["evil.example:7070", "10.0.0.6", "localhost.evil.example", "127.0.0.1.evil", "[::2]", ":1"]
        {
            let checked = check(Method::GET, &[("host", host)]);
            assert_eq!(checked, Err(Refusal::OtherHost(host.to_string())));
        }
        assert_eq!(check(Method::GET, &[]), Err(Refusal::NoHost));
        assert_eq!(check(Method::GET, &[("host", "localhost"), ("host", "evil")]), Err(Refusal::NoHost));
    }

    #[test]
    fn the_request_line_does_not_name_another_host() {
        let mut headers = HeaderMap::new();
        headers.insert("host", "localhost:1".parse().expect("a value"));
        let check = |uri: &'static str| {
            let local = IpAddr::from([127, 0, 0, 1]);
            HostNames::default().check(&Method::GET, &Uri::from_static(uri), &headers, local)
        };
        assert_eq!(check("http://localhost:1/v1/jobs"), Ok(()));
        assert_eq!(check("http://evil:1/v1/jobs"), Err(Refusal::OtherHost("evil:1".to_string())));
    }

    #[test]
    fn page_of_another_origin_is_refused() {
        let get = |name, value| check(Method::GET, &[("host", "localhost:7070"), (name, value)]);
        assert_eq!(get("origin", "http://localhost:7070"), Ok(()));
        assert_eq!(get("origin", "https://localhost:7070"), Ok(()));
        for origin in
            ["null", "http://localhost:8080", "http://127.0.0.1:7070", "http://evil", "file://localhost:7070"]
        {
            assert_eq!(get("origin", origin), Err(Refusal::OtherOrigin(origin.to_string())));
        }
        assert_eq!((get("sec-fetch-site", "none"), get("sec-fetch-site", "same-origin")), (Ok(()), Ok(())));
        for site in ["cross-site", "same-site", "", "anything"] {
            assert_eq!(get("sec-fetch-site", site), Err(Refusal::OtherSite), "{site}");
        }
    }

    #[test]
    fn changes_are_marked_by_header_or_type() {
        let post = |lines: &[(&str, &str)]| check(Method::POST, &[&[("host", "localhost")], lines].concat());
        for good in ["application/json", "application/json; charset=utf-8", "application/octet-stream"] {
            assert_eq!(post(&[("content-type", good)]), Ok(()), "{good}");
        }
        assert_eq!(post(&[("sailfish-request", "1")]), Ok(()));
        assert_eq!(post(&[("sailfish-incarnation", "1"), ("content-type", "text/plain")]), Ok(()));
        let unmarked = Err(Refusal::Unmarked(Method::POST));
        for bad in ["text/plain", "Text/Plain;charset=utf-8", "multipart/form-data; boundary=x", "", "json"] {
            assert_eq!(post(&[("content-type", bad)]), unmarked, "{bad}");
        }
        assert_eq!(post(&[("content-type", "application/json, text/plain")]), unmarked);
        assert_eq!(post(&[("content-type", "application/json"), ("content-type", "text/plain")]), unmarked);
        assert_eq!(post(&[]), unmarked);
        for method in [Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            assert_eq!(check(method.clone(), &[("host", "localhost")]), Err(Refusal::Unmarked(method)));
        }
    }
}
