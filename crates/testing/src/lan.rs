//! A network of hosts on this machine, with lines that can be cut, one direction at a time.
//!
//! Each host is a network namespace with a link to one switch; this process is on it too. Every host has fixed ARP
//! entries for all others. A line is cut by giving the sender a wrong hardware address: its packets reach no host, and
//! the sender gets no error, as with a cable pulled out behind a switch.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The maximum number of networks of one process at a time: each has a range of addresses.
const LANS_MAX: u8 = 16;

/// The second byte of the addresses of the first network.
const RANGE: u8 = 232;

/// A hardware address that no host has.
const NOBODY: &str = "02:fc:00:00:00:ff";

static NUMBERS: AtomicU8 = AtomicU8::new(0);

/// An end of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// This process, and all other processes not started on a [host](Lan::command).
    Here,
    /// A host, from 0.
    Host(u8),
}

/// A cut line: packets from one end to the other are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut {
    /// The sender.
    pub from: End,
    /// The receiver.
    pub to: End,
}

/// A network of this process. Dropping it removes it, and kills the processes on its hosts.
pub struct Lan {
    /// The prefix of the names of all its parts.
    name: String,
    /// The first three bytes of its addresses.
    range: [u8; 3],
    hosts: u8,
    cuts: BTreeSet<Cut>,
}

impl Lan {
    /// A network of this many hosts; `None` where this process may not make one.
    ///
    /// # Panics
    /// If there are too many hosts for its range of addresses.
    pub fn of(hosts: u8) -> Option<Self> {
        assert!(hosts < 200, "a network has room for 200 hosts, not for {hosts}");
        let (process, number) = (std::process::id(), NUMBERS.fetch_add(1, Relaxed) % LANS_MAX);
        let lan = Self {
            name: format!("fo{process}-{number}"),
            range: [10, RANGE + number, (process % 250) as u8],
            hosts,
            cuts: BTreeSet::new(),
        };
        // From here on, dropping `lan` removes everything that was created, even if it is incomplete.
        lan.make().then_some(lan)
    }

    fn make(&self) -> bool {
        let switch = &self.name;
        let here = hardware_address(End::Here);
        let is_switched = ip(&["link", "add", switch, "address", &here, "type", "bridge"])
            && ip(&["addr", "add", &format!("{}/24", self.address(End::Here)), "dev", switch])
            && ip(&["link", "set", switch, "up"]);
        is_switched && (0..self.hosts).all(|host| self.make_host(host)) && self.introduce()
    }

    fn make_host(&self, host: u8) -> bool {
        let (namespace, port) = (self.namespace(host), format!("{}p{host}", self.name));
        let address = format!("{}/24", self.address(End::Host(host)));
        let hardware = hardware_address(End::Host(host));
        ip(&["netns", "add", &namespace])
            && ip(&[
                "link", "add", &port, "type", "veth", "peer", "name", "lan", "address", &hardware, "netns", &namespace,
            ])
            && ip(&["link", "set", &port, "master", &self.name, "up"])
            && ip(&["-n", &namespace, "addr", "add", &address, "dev", "lan"])
            && ip(&["-n", &namespace, "link", "set", "lan", "up"])
            && ip(&["-n", &namespace, "link", "set", "lo", "up"])
    }

    /// Gives every end the addresses of all others.
    fn introduce(&self) -> bool {
        let ends = || std::iter::once(End::Here).chain((0..self.hosts).map(End::Host));
        ends().all(|from| {
            let mut others = ends().filter(|to| *to != from);
            others.all(|to| self.tell(Cut { from, to }, &hardware_address(to)))
        })
    }

    /// Sets the hardware address that the sender of a line uses for the other end.
    fn tell(&self, line: Cut, hardware: &str) -> bool {
        let address = self.address(line.to).to_string();
        let entry = [
            "neigh",
            "replace",
            &address,
            "lladdr",
            hardware,
            "nud",
            "permanent",
            "dev",
        ];
        match line.from {
            End::Here => ip(&[&entry[..], &[&self.name]].concat()),
            End::Host(host) => ip(&[&["-n", &self.namespace(host)], &entry[..], &["lan"]].concat()),
        }
    }

    /// The address of an end.
    pub fn address(&self, end: End) -> Ipv4Addr {
        let [first, second, third] = self.range;
        let fourth = match end {
            End::Here => 1,
            End::Host(host) => 2 + host,
        };
        Ipv4Addr::new(first, second, third, fourth)
    }

    /// A command that starts a program on a host; add the program and its arguments.
    pub fn command(&self, host: u8) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]);
        command
    }

    /// Both directions between an end and each of others.
    pub fn both_ways(end: End, others: impl IntoIterator<Item = End>) -> BTreeSet<Cut> {
        let lines = |other| [Cut { from: end, to: other }, Cut { from: other, to: end }];
        others.into_iter().flat_map(lines).collect()
    }

    /// Cuts these lines, and heals all others.
    ///
    /// # Panics
    /// If the lines cannot be cut.
    pub fn set_cuts(&mut self, cuts: BTreeSet<Cut>) {
        for &line in self.cuts.difference(&cuts) {
            assert!(self.tell(line, &hardware_address(line.to)), "{line:?} cannot be healed");
        }
        for &line in cuts.difference(&self.cuts) {
            assert!(self.tell(line, NOBODY), "{line:?} cannot be cut");
        }
        self.cuts = cuts;
    }

    fn namespace(&self, host: u8) -> String {
        format!("{}h{host}", self.name)
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        // Parts may be missing. A link is removed with its other end.
        for host in 0..self.hosts {
            ip(&["link", "del", &format!("{}p{host}", self.name)]);
            ip(&["netns", "del", &self.namespace(host)]);
        }
        ip(&["link", "del", &self.name]);
    }
}

/// The addresses are the same in all networks, which are not connected.
fn hardware_address(end: End) -> String {
    match end {
        End::Here => "02:fc:00:00:00:01".to_owned(),
        End::Host(host) => format!("02:fc:00:00:00:{:02x}", 2 + host),
    }
}

fn ip(arguments: &[&str]) -> bool {
    let output = Command::new("ip").args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream, UdpSocket};
    use std::time::Duration;

    use tempfile::NamedTempFile;

    use super::*;
    use crate::process::ServerProcess;
    use crate::wait::wait_until;

    /// How long the test waits for something that must not happen.
    const VAIN: Duration = Duration::from_millis(300);

    #[test]
    fn a_cut_in_one_direction_leaves_the_other_open() {
        let Some(mut lan) = Lan::of(1) else {
            return println!("skipped: no network namespace can be made here (it needs root, and the ip command)");
        };
        let here = UdpSocket::bind((lan.address(End::Here), 0)).unwrap();
        here.set_read_timeout(Some(VAIN)).unwrap();
        let host = lan.address(End::Host(0));
        let (to, said) = (here.local_addr().unwrap(), NamedTempFile::new().unwrap());
        // Sends repeatedly, and prints what it receives.
        let script = "import socket, sys, time\n\
                      s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                      s.bind((sys.argv[1], 7)); s.settimeout(0.01)\n\
                      while True:\n\
                      \x20 s.sendto(b'x', (sys.argv[2], int(sys.argv[3])))\n\
                      \x20 try: print(s.recv(9).decode(), flush=True)\n\
                      \x20 except TimeoutError: pass\n";
        let mut command = lan.command(0);
        command.args(["python3", "-c", script, &host.to_string()]);
        command.args([to.ip().to_string(), to.port().to_string()]);
        let _server = ServerProcess::start("a host", &mut command, said.path());
        let heard_there = |what: &str| {
            here.send_to(what.as_bytes(), SocketAddr::from((host, 7))).unwrap();
            std::fs::read_to_string(said.path()).unwrap().contains(what)
        };
        let heard_here = || here.recv(&mut [0; 9]).is_ok();
        wait_until("the host to be heard", Duration::from_secs(20), heard_here);
        wait_until("the host to hear", Duration::from_secs(20), || heard_there("first"));

        let there = Cut {
            from: End::Here,
            to: End::Host(0),
        };
        lan.set_cuts(BTreeSet::from([there]));
        for _ in 0..10 {
            assert!(!heard_there("second") && heard_here());
        }
        lan.set_cuts(BTreeSet::from([Cut {
            from: there.to,
            to: there.from,
        }]));
        wait_until("the host to hear", Duration::from_secs(20), || heard_there("third"));
        // Packets in flight are read first.
        wait_until("the host to be silent", Duration::from_secs(20), || !heard_here());

        lan.set_cuts(Lan::both_ways(End::Here, [End::Host(0)]));
        assert!(TcpStream::connect_timeout(&SocketAddr::from((host, 7)), VAIN).is_err());
        lan.set_cuts(BTreeSet::new());
        wait_until("the host to be heard", Duration::from_secs(20), heard_here);
    }
}
