//! The examination of a reference follows the path of a call: the text, the name, each address,
//! then the object. Each check has a deadline.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelane::{CallPhase, Event, Ior, ObjectRef, Orb, SystemException, SystemExceptionKind as Kind};
use corelane_wire::codeset::{CharSet, CodeSetInfo, WideByteOrder, negotiate};
use corelane_wire::giop::Version;
use corelane_wire::ior::{Corbaname, ObjectUrl, Profile, ProfileAddress, ProfileEndpoint, component_tag};
use corelane_wire::{CdrError, Limits};

use super::finding::{CheckResult, ExaminedObject, Finding};
use crate::candidates::{CANDIDATE_LIMITS, Candidate, candidates};
use crate::ior::content::{code_set, is_known, profile_name};
use crate::naming;
use crate::text::{excerpt, printable};

const MAX_TIME: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

const PUBLISH: &str = "let the server publish an address that clients reach: OrbBuilder::published_address, `corelane naming serve --publish`, omniORB's \
     -ORBendPointPublish, TAO's hostname_in_ior";
const NAME: &str = "correct the name, or bind it: `corelane naming list` and `corelane naming bind`";
const MINOR_CODES: &str = "docs/minor-codes.md explains the exceptions of Corelane servers";

pub(super) struct Examination {
    timeout: Duration,
    began: Instant,
    subject: ExaminedObject,
    /// True after an event [`Event::ProtocolFault`], until a check reads it. Stored with release,
    /// and swapped with acquire.
    broke_protocol: Arc<AtomicBool>,
    pub(super) findings: Vec<Finding>,
    pub(super) works: bool,
}

/// Examines a reference in steps. `timeout` is the maximum time of each step.
pub(super) fn examine(text: &str, timeout: Duration) -> Examination {
    let mut examination = Examination {
        timeout,
        began: Instant::now(),
        subject: ExaminedObject::Object,
        broke_protocol: Arc::new(AtomicBool::new(false)),
        findings: Vec::new(),
        works: false,
    };
    let broke_protocol = Arc::clone(&examination.broke_protocol);
    let watch = move |event: &Event| {
        if matches!(event, Event::ProtocolFault { .. }) {
            broke_protocol.store(true, Ordering::Release);
        }
    };
    let orb = match Orb::builder().call_timeout(timeout).limits(CANDIDATE_LIMITS).on_event(watch).build() {
        Ok(orb) => orb,
        Err(error) => {
            examination.add(Finding::bad(
                "ORB",
                error.to_string(),
                "the machine refuses threads or descriptors: see ulimit -a",
            ));
            return examination;
        }
    };
    match ObjectUrl::parse(text, &Limits::DEFAULT) {
        Ok(ObjectUrl::Corbaname(url)) => examination.name(&orb, text, &url),
        Ok(ObjectUrl::Corbaloc(url)) if url.initial_reference().is_some() => examination.add(Finding::bad(
            "reference",
            "the text stands for an initial reference of a program, and this command has none",
            "give the address: corbaloc::1.2@HOST:PORT/KEY",
        )),
        Ok(_) => match orb.string_to_object(text) {
            Ok(Some(object)) => {
                examination.works = examination.object(&orb, &object);
            }
            Ok(None) => examination.nil(),
            Err(exception) => examination.malformed(text, &exception.to_string()),
        },
        Err(error) => examination.malformed(text, &error.to_string()),
    }
    examination
}

impl Examination {
    fn add(&mut self, finding: Finding) {
        self.findings.push(Finding { subject: self.subject, ..finding });
    }

    /// Returns the maximum time of the next step, which is zero if no time is left.
    fn step(&self) -> Duration {
        self.timeout.min(MAX_TIME.saturating_sub(self.began.elapsed()))
    }

    fn malformed(&mut self, text: &str, error: &str) {
        let found = format!("`{}` is not a reference: {}", excerpt(text), printable(error));
        self.add(Finding::bad(
            "reference",
            found,
            "copy the whole text, from IOR:, corbaloc: or corbaname: to its end",
        ));
    }

    fn nil(&mut self) {
        let remedy = "the server handed out no object: examine the program that made the reference";
        self.add(Finding::bad("reference", "the reference is nil: it names no object", remedy));
    }

    fn name(&mut self, orb: &Orb, text: &str, url: &Corbaname) {
        let context = match orb.string_to_object(&url.context.to_string()) {
            Ok(Some(context)) => context,
            Ok(None) => return self.nil(),
            Err(exception) => return self.malformed(text, &exception.to_string()),
        };
        self.subject = if url.name.is_some() { ExaminedObject::NameServer } else { ExaminedObject::Object };
        let is_context_there = self.object(orb, &context);
        self.subject = ExaminedObject::Object;
        let Some(name) = &url.name else {
            self.works = is_context_there;
            return;
        };
        if !is_context_there {
            let found = format!("`{}` cannot be looked up: the name server does not answer", excerpt(name));
            let remedy = "first correct the findings about the name server above";
            return self.add(Finding::bad("name", found, remedy));
        }
        match naming::object_of_reference(orb, text) {
            Ok(Some(object)) => {
                self.add(Finding::good("name", format!("`{}` is bound", excerpt(name))));
                self.works = self.object(orb, &object);
            }
            Ok(None) => self.add(Finding::bad("name", format!("`{}` is bound to nil", excerpt(name)), NAME)),
            Err(error) => self.add(Finding::bad("name", printable(&error), NAME)),
        }
    }

    fn object(&mut self, orb: &Orb, object: &ObjectRef) -> bool {
        let ior = object.ior();
        let type_id = if object.type_id().is_empty() { "no type".to_owned() } else { excerpt(object.type_id()) };
        let count = ior.profiles.len();
        let profiles = if count == 1 { "1 profile".to_owned() } else { format!("{count} profiles") };
        self.add(Finding::good("reference", format!("{profiles}, {type_id}")));
        let all = candidates(ior);
        for (index, tagged) in ior.profiles.iter().enumerate() {
            let number = index + 1;
            match tagged.parse() {
                Ok(profile) => self.profile(number, &profile, !all.iter().any(|one| one.profile == number)),
                Err(error) => self.unusable(number, tagged.tag, error),
            }
        }
        let mut answered = None;
        for candidate in &all {
            if self.step().is_zero() {
                let remedy = "examine fewer addresses, or give a shorter --timeout";
                self.add(at(candidate, Finding::unsure("route", "not examined: the time is over", remedy)));
                break;
            }
            if self.address(candidate) && self.server(orb, candidate) && answered.is_none() {
                answered = Some(candidate);
            }
        }
        match answered {
            Some(candidate) => self.interface(orb, candidate, ior),
            None => false,
        }
    }

    fn unusable(&mut self, number: usize, tag: u32, error: CdrError) {
        let name = profile_name(tag);
        let finding = if error == CdrError::UnsupportedForm || !is_known(tag) {
            no_transport(&name)
        } else {
            let remedy = "make the reference again: its octets are damaged";
            Finding::bad("reference", format!("{name}: malformed: {}", printable(&error.to_string())), remedy)
        };
        self.add(finding.at(number, None));
    }

    fn profile(&mut self, number: usize, profile: &Profile<'_>, has_no_address: bool) {
        let at = |finding: Finding| finding.at(number, None);
        let ssl = profile.components.find(component_tag::SSL_SEC_TRANS).is_some();
        if has_no_address {
            self.add(at(match profile.address {
                ProfileAddress::Inet { port: 0, .. } if ssl => Finding::bad(
                    "transport",
                    "the server takes TLS connections only, which this ORB does not make",
                    "let the server listen without TLS too, or put a TLS proxy between",
                ),
                ProfileAddress::Inet { port: 0, .. } => Finding::bad("publish address", "the port is 0", PUBLISH),
                _ => no_transport(&profile_name(profile.tag)),
            }));
        }
        self.add(at(if profile.version < Version::HIGHEST {
            let remedy = "in a corbaloc write the version, as in corbaloc::1.2@HOST:PORT/KEY; else raise the server's";
            let found = format!("{}: no wide text, and other limits of old versions", profile.version);
            Finding::unsure("GIOP version", found, remedy)
        } else {
            Finding::good("GIOP version", profile.version.min(Version::HIGHEST).to_string())
        }));
        self.add(at(code_sets(profile)));
        let (key, limit) = (profile.object_key.len(), Limits::DEFAULT.max_message_size);
        let found = format!("object key of {key} octets; this ORB takes messages up to {limit} octets");
        self.add(at(if key == 0 {
            Finding::unsure("limits", "the object key is empty", "give the key: corbaloc::1.2@HOST:PORT/KEY")
        } else {
            Finding::good("limits", found)
        }));
    }

    /// Checks an address and adds findings. Returns true if a TCP connection was made, or if the
    /// file of the address is a socket.
    fn address(&mut self, candidate: &Candidate) -> bool {
        if let Some(finding) = published(&candidate.endpoint) {
            self.add(at(candidate, finding));
        }
        let reached = match &candidate.endpoint {
            ProfileEndpoint::Inet { host, port } => match self.look_up(candidate, host, *port) {
                Some(addresses) => connect_any(&addresses, self.step()),
                None => return false,
            },
            ProfileEndpoint::Unix { path, .. } | ProfileEndpoint::SharedMemory { path, .. } => socket_file(path),
            ProfileEndpoint::Other { scheme, .. } => {
                self.add(at(candidate, no_transport(&format!("scheme `{}`", excerpt(scheme)))));
                return false;
            }
        };
        let is_reached = reached.is_ok();
        self.add(at(candidate, route(reached)));
        is_reached
    }

    /// Returns the addresses of a host, or adds a finding and returns `None`. The resolver cannot
    /// be interrupted, so it runs on a separate thread.
    fn look_up(&mut self, candidate: &Candidate, host: &str, port: u16) -> Option<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(vec![SocketAddr::new(address, port)]);
        }
        let end = Instant::now() + self.step();
        let name = (host.to_owned(), port);
        let resolver = thread::Builder::new().name("doctor/resolver".to_owned());
        let look_up = resolver.spawn(move || Ok::<_, io::Error>(name.to_socket_addrs()?.collect::<Vec<_>>()));
        let remedy = "correct the name, or enter it in DNS or /etc/hosts; else let the server publish another address";
        let outcome = match look_up {
            Ok(thread) => {
                while !thread.is_finished() && Instant::now() < end {
                    thread::sleep(LOOK);
                }
                if thread.is_finished() {
                    thread.join().unwrap_or_else(|_| Err(io::Error::other("the resolver failed")))
                } else {
                    Err(io::Error::new(ErrorKind::TimedOut, "the resolver does not answer in time"))
                }
            }
            Err(error) => Err(error),
        };
        let finding = match outcome {
            Ok(addresses) if !addresses.is_empty() => {
                let shown: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).take(8).collect();
                self.add(at(
                    candidate,
                    Finding::good("name resolution", format!("`{}` is {}", excerpt(host), shown.join(", "))),
                ));
                return Some(addresses);
            }
            Ok(_) => Finding::bad("name resolution", format!("`{}` has no address", excerpt(host)), remedy),
            Err(error) => {
                let error = printable(&error.to_string());
                Finding::bad("name resolution", format!("`{}` cannot be resolved: {error}", excerpt(host)), remedy)
            }
        };
        self.add(at(candidate, finding));
        None
    }

    fn server(&mut self, orb: &Orb, candidate: &Candidate) -> bool {
        let answer = alone(orb, candidate, self.step()).and_then(|object| object.validate_connection());
        let is_there = answer.is_ok();
        let broke_protocol = self.broke_protocol.swap(false, Ordering::AcqRel);
        self.add(at(
            candidate,
            match answer {
                Ok(()) => Finding::good("server", "it has the object"),
                Err(exception) => refusal(&exception, broke_protocol),
            },
        ));
        is_there
    }

    fn interface(&mut self, orb: &Orb, candidate: &Candidate, ior: &Ior) -> bool {
        let asked = alone(orb, candidate, self.step()).and_then(|object| {
            let is_missing = object.non_existent()?;
            let is_type = if is_missing || ior.type_id.is_empty() { true } else { object.is_a(&ior.type_id)? };
            Ok((is_missing, is_type))
        });
        let broke_protocol = self.broke_protocol.swap(false, Ordering::AcqRel);
        let finding = match asked {
            Ok((true, _)) => Finding::bad("object", "it does not exist", "get a new reference from the server"),
            Ok((false, false)) => Finding::unsure(
                "object",
                format!("it exists, but it denies that it is a {}", excerpt(&ior.type_id)),
                "the reference is old, or another object has its key: get a new one from the server",
            ),
            Ok((false, true)) => Finding::good("object", "it exists and answers"),
            Err(exception) => Finding { check: "object", ..refusal(&exception, broke_protocol) },
        };
        let works = finding.verdict != CheckResult::Bad;
        self.add(finding);
        works
    }
}

fn at(candidate: &Candidate, finding: Finding) -> Finding {
    finding.at(candidate.profile, Some(candidate.address_and_lane()))
}

fn alone(orb: &Orb, candidate: &Candidate, timeout: Duration) -> Result<ObjectRef, SystemException> {
    let object = orb.string_to_object(&candidate.ior.to_text()?)?;
    let nil =
        || SystemException::new(Kind::InvObjref, 0, corelane::Completion::No).with_message("the reference is nil");
    Ok(object.ok_or_else(nil)?.with_timeout(timeout.max(Duration::from_millis(1))))
}

/// Returns a finding if clients may be unable to reach the address.
fn published(endpoint: &ProfileEndpoint) -> Option<Finding> {
    let ProfileEndpoint::Inet { host, .. } = endpoint else { return None };
    let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let check = "publish address";
    Some(match address {
        Some(address) if address.is_unspecified() => {
            Finding::bad(check, "stands for every address of a machine, so clients reach themselves", PUBLISH)
        }
        Some(address) if address.is_loopback() => {
            Finding::unsure(check, "only programs on the server's own machine reach it", PUBLISH)
        }
        Some(IpAddr::V4(address)) if address.is_link_local() => {
            Finding::unsure(check, "only machines on the server's own link reach it", PUBLISH)
        }
        Some(IpAddr::V6(address)) if address.is_unicast_link_local() => {
            Finding::bad(check, "a link-local address needs an interface, which references do not name", PUBLISH)
        }
        None if host.eq_ignore_ascii_case("localhost") => {
            Finding::unsure(check, "only programs on the server's own machine reach it", PUBLISH)
        }
        _ => return None,
    })
}

fn no_transport(name: &str) -> Finding {
    let remedy = "let the server listen at TCP or a Unix socket too";
    Finding::unsure("transport", format!("{name}: this ORB does not have this transport"), remedy)
}

/// Checks that a file is a socket. Does not connect, because the ORB later connects to the socket
/// with a time-out.
fn socket_file(path: &str) -> io::Result<String> {
    if fs::metadata(path)?.file_type().is_socket() {
        return Ok("the socket exists".to_owned());
    }
    Err(io::Error::other("the file is not a socket"))
}

fn connect_any(addresses: &[SocketAddr], time: Duration) -> io::Result<String> {
    let share = (time / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1)).max(Duration::from_millis(1));
    let mut failure = io::Error::new(ErrorKind::NotFound, "there is no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, share) {
            Ok(_) => return Ok(format!("a program takes connections at {address}")),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn route(reached: io::Result<String>) -> Finding {
    let error = match reached {
        Ok(found) => return Finding::good("route", found),
        Err(error) => error,
    };
    let (found, remedy) = match error.kind() {
        ErrorKind::ConnectionRefused => (
            "refused: the machine answers, and no program listens there",
            "start the server, or get a new reference: a server without a fixed port has another one after each start",
        ),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => (
            "no answer to the attempt to connect",
            "start the machine, or let the firewall between pass connections to this port",
        ),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            ("no route leads to the machine", "connect the network, or let the server publish an address on this one")
        }
        ErrorKind::NotFound => ("there is no such socket", "start the server, on this machine and in this file system"),
        ErrorKind::PermissionDenied => {
            ("connecting is not permitted", "give this user access to the socket or the port")
        }
        _ => {
            let found = printable(&error.to_string());
            return Finding::bad("route", found, "look at the network between the machines");
        }
    };
    Finding::bad("route", found, remedy)
}

fn refusal(exception: &SystemException, broke_protocol: bool) -> Finding {
    let cause = printable(&exception.to_string());
    let phase = exception.detail().and_then(|detail| detail.phase);
    let (found, remedy) = match (exception.kind(), phase) {
        (Kind::Timeout, Some(CallPhase::WaitForReply)) => (
            "it takes connections and answers nothing",
            "look whether a CORBA server has this port, and whether all its threads are busy or its POA manager holds requests",
        ),
        (Kind::CommFailure | Kind::Transient, Some(_)) if broke_protocol => {
            ("it answers, but not in GIOP", "correct the port: another program has this one, or it expects TLS")
        }
        (Kind::CommFailure | Kind::Transient, Some(CallPhase::SendRequest | CallPhase::WaitForReply)) => (
            "it closes the connection without an answer",
            "look at the server's log: it may refuse this client, be full, or be another program",
        ),
        (Kind::CommFailure | Kind::Transient, Some(CallPhase::Connect | CallPhase::AcquireConnection)) => {
            ("it takes no connection", "look whether the server is full, and whether the firewall passes this program")
        }
        (Kind::ObjectNotExist, _) => (
            "it does not have the object",
            "get a new reference: the object was deactivated, or the server started anew with transient objects; in a corbaloc \
             correct the key",
        ),
        (Kind::Transient, None) if exception.detail().is_some() => {
            ("this program cannot use the address", "run the command on the machine that has the socket")
        }
        (Kind::Transient, None) => {
            ("it has no resources for the request now", "try again, and look at the server's load and its POA managers")
        }
        (Kind::NoPermission, _) => {
            ("it does not permit the request", "look at the server's access rules and priority ceilings")
        }
        (Kind::CodesetIncompatible, _) => ("it has no code set in common", "give the server UTF-8 or ISO 8859-1"),
        _ => ("it refuses the request", MINOR_CODES),
    };
    Finding::bad("server", format!("{found} ({cause})"), remedy)
}

fn code_sets(profile: &Profile<'_>) -> Finding {
    let check = "code sets";
    if profile.version.minor == 0 {
        return Finding::unsure(check, "GIOP 1.0 has ISO 8859-1 alone", "raise the version");
    }
    let Some(data) = profile.components.find(component_tag::CODE_SETS) else {
        let remedy = "let the server name its code sets, or write no corbaloc if text is not ASCII";
        return Finding::unsure(check, "the reference names none: text beyond ISO 8859-1 may fail", remedy);
    };
    let Ok(server) = CodeSetInfo::parse(data) else {
        return Finding::bad(check, "the component is malformed", "make the reference again: its octets are damaged");
    };
    match negotiate(&CodeSetInfo::for_native(CharSet::Utf8), &server, WideByteOrder::SpecifiedOrder) {
        Ok(sets) => {
            let wide = code_set(sets.wchar.id());
            Finding::good(check, format!("{} for char, {wide} for wchar", code_set(sets.char.id())))
        }
        Err(_) => {
            let found = format!("none in common: the server has {} for char", code_set(server.char.native));
            Finding::bad(check, found, "give the server UTF-8 or ISO 8859-1")
        }
    }
}
