//! Finds the users whose programs listen at a port of this machine, from the kernel's tables in `/proc/net`.

use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest table, in bytes: some hundred thousand connections.
const TABLE_BYTES_MAX: u64 = 64 << 20;
/// State of a listening socket.
const LISTEN: &str = "0A";

/// Returns the user ids of all sockets that may accept a connection to `address`; empty if none listens.
pub(crate) fn owners_of(address: SocketAddr) -> std::io::Result<Vec<u32>> {
    let mut owners = read("/proc/net/tcp", address)?;
    // A socket of IPv6 may accept connections of IPv4 too.
    match read("/proc/net/tcp6", address) {
        Ok(more) => owners.extend(more),
        // The kernel has no IPv6.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(owners)
}

fn read(path: &str, address: SocketAddr) -> std::io::Result<Vec<u32>> {
    let table = BufReader::new(File::open(path)?.take(TABLE_BYTES_MAX));
    let mut owners = Vec::new();
    for line in table.lines().skip(1) {
        let line = line?;
        let socket = Socket::parse(&line).ok_or_else(|| Error::from(ErrorKind::InvalidData))?;
        owners.extend(socket.filter(|socket| socket.takes(address)).map(|socket| socket.owner));
    }
    Ok(owners)
}

/// A listening socket.
struct Socket {
    ip: IpAddr,
    port: u16,
    owner: u32,
}

impl Socket {
    /// Parses a line of the table. Some(None) for a socket that does not listen; None for an invalid line.
    fn parse(line: &str) -> Option<Option<Socket>> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        if state != LISTEN {
            return Some(None);
        }
        let owner = words.nth(3)?.parse().ok()?;
        let (ip, port) = local.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(Some(Socket { ip: parse_ip(ip)?, port, owner }))
    }

    fn takes(&self, address: SocketAddr) -> bool {
        let is_any = match self.ip {
            IpAddr::V4(ip) => ip.is_unspecified() && address.is_ipv4(),
            IpAddr::V6(ip) => ip.is_unspecified(),
        };
        self.port == address.port() && (is_any || self.ip.to_canonical() == address.ip().to_canonical())
    }
}

/// Parses 32-bit words in native byte order, in hex.
fn parse_ip(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::owners_of;
    use std::net::{SocketAddr, TcpListener};

    #[test]
    fn the_owner_of_a_port_is_found() {
        let own = rustix::process::geteuid().as_raw();
        for listen in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            // Without IPv6 there is nothing to find.
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let address = listener.local_addr().unwrap();
            assert!(owners_of(address).unwrap().contains(&own), "{address}");
            let loopback = if listen.starts_with('[') { "[::1]" } else { "127.0.0.1" };
            let asked: SocketAddr = format!("{loopback}:{}", address.port()).parse().unwrap();
            assert_eq!(owners_of(asked).unwrap(), [own], "{listen}");
            drop(listener);
            assert_eq!(owners_of(asked).unwrap(), [0_u32; 0], "{listen}");
        }
    }

    #[test]
    fn a_connection_listens_nowhere() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(owners_of(connection.local_addr().unwrap()).unwrap(), [0_u32; 0]);
    }

    #[test]
    fn wildcard_ipv6_socket_also_takes_ipv4() {
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let asked = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        assert_eq!(owners_of(asked).unwrap(), [rustix::process::geteuid().as_raw()]);
    }
}
