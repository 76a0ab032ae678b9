//! Shared code of the real-time tests: a servant that reports the thread of each upcall, and a
//! client that writes its GIOP messages itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane::rt::{RtConfig, RtOrb, SchedulingClass, served_by};
use corelane::{ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException};
use corelane_sys::thread::Scheduling;
use corelane_wire::exception::{SystemExceptionBody, SystemExceptionKind};
use corelane_wire::giop::{
    self, Header, MessageKind, Reply, ReplyStatus, RequestHeader, ResponseExpected, ServiceContext, TargetAddress,
    context_id,
};
use corelane_wire::ior::{TaoEndpoint, component_tag};
use corelane_wire::rt::{self, PriorityModelValue, policy_type};
use corelane_wire::{Decoder, Encoder, Limits, Version};

/// The lane, thread and connection that served a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpcallReport {
    /// RTCurrent's priority, or -1 if it is unset.
    pub priority: i16,
    /// The number of the Real-time CORBA thread pool that served the call, or 0 if none did.
    pub pool: u32,
    /// Index of the serving lane in its pool.
    pub lane: u32,
    /// The kernel's thread id.
    pub tid: i32,
    /// The thread's fixed priority, or 0 in the ordinary scheduling class.
    pub native: u8,
    /// The id of the connection within the server's ORB, or 0 for a collocated call.
    pub connection: u64,
    /// True if the request arrived at another lane than the lane that served it.
    pub handed_over: bool,
    /// The thread's name.
    pub thread: String,
}

/// A servant whose operations return an [`UpcallReport`].
///
/// `who` returns at once, and `wait` sleeps until [`release`](Self::release). `hold` spins until
/// `release`, for at most 10 s, and `spin` for as many microseconds as its argument says. `pass`
/// returns the report of `who` of another object.
#[derive(Debug)]
pub struct Reporter {
    orb: RtOrb,
    /// Number of begun operations.
    pub begun: AtomicUsize,
    /// Number of threads in `wait`.
    pub waiting: AtomicUsize,
    /// 0 until `wait` and `hold` may return, then 1.
    pub released: AtomicUsize,
    /// The priorities of the operations except `pass`, in the order in which the operations ended.
    pub priorities_run: corelane_sys::lock::Mutex<Vec<i16>>,
    /// Target of `pass`.
    pub pass_target: OnceLock<ObjectRef>,
    /// The priority that each operation sets in RTCurrent when it begins.
    pub priority_to_set: Option<i16>,
}

impl Reporter {
    /// Makes a reporter that serves in `orb`, and that leaves the priority in RTCurrent unchanged.
    #[must_use]
    pub fn new(orb: &Orb) -> Arc<Self> {
        Self::with_priority(orb, None)
    }

    /// Makes a reporter that serves in `orb`. If `priority_to_set` is present, each operation sets
    /// it in RTCurrent when it begins.
    #[must_use]
    pub fn with_priority(orb: &Orb, priority_to_set: Option<i16>) -> Arc<Self> {
        Arc::new(Reporter {
            orb: orb.real_time(),
            begun: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            released: AtomicUsize::new(0),
            priorities_run: corelane_sys::lock::Mutex::new("order", corelane_sys::lock::LockScope::Orb, Vec::new()),
            pass_target: OnceLock::new(),
            priority_to_set,
        })
    }

    /// Makes a servant.
    #[must_use]
    pub fn servant(self: &Arc<Self>) -> Servant {
        Servant::new(Shared(Arc::clone(self)))
    }

    /// Waits until at least `threads` threads run `wait`.
    ///
    /// # Panics
    /// Panics after a minute.
    pub fn wait_for_held_threads(&self, threads: usize) {
        wait_until(|| self.waiting.load(Ordering::SeqCst) >= threads);
    }

    /// Lets all present and future calls of `wait` and `hold` return.
    pub fn release(&self) {
        self.released.store(1, Ordering::SeqCst);
    }

    fn who(&self) -> UpcallReport {
        let priority = self.orb.current().and_then(|current| current.the_priority()).unwrap_or(-1);
        let by = served_by();
        let native = match by.scheduling {
            Some(Scheduling::Fifo(native) | Scheduling::RoundRobin(native)) => native,
            _ => 0,
        };
        UpcallReport {
            priority,
            pool: by.threadpool.map_or(0, |pool| pool.number()),
            lane: by.lane as u32,
            tid: by.tid,
            native,
            connection: by.connection.unwrap_or(0),
            handed_over: by.was_handed_over,
            thread: by.thread,
        }
    }
}

struct Shared(Arc<Reporter>);

impl Skeleton for Shared {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Reporter:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let reporter = &self.0;
        if let Some(priority) = reporter.priority_to_set {
            reporter.orb.current()?.set_priority(priority)?;
        }
        reporter.begun.fetch_add(1, Ordering::SeqCst);
        let who = reporter.who();
        match operation {
            b"who" => {}
            b"wait" => {
                reporter.waiting.fetch_add(1, Ordering::SeqCst);
                wait_until(|| reporter.released.load(Ordering::SeqCst) > 0);
                reporter.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            b"hold" => {
                let end = corelane_sys::clock::now() + Duration::from_secs(10);
                while reporter.released.load(Ordering::SeqCst) == 0 && !end.is_past() {}
            }
            b"spin" => {
                let end = corelane_sys::clock::now() + Duration::from_micros(call.arguments().read_u32()?.into());
                while !end.is_past() {}
            }
            b"pass" => {
                static OPERATION: corelane::mapping::Operation = corelane::mapping::Operation::new("who");
                let other = reporter.pass_target.get().expect("the test has set the other object");
                let octets = other.invoke(&OPERATION, &|_| Ok(()))?.read(|d| Ok(read_who(d)))?;
                write_who(call.reply(), &octets)?;
                return Ok(());
            }
            _ => return Err(SystemException::bad_operation()),
        }
        reporter.priorities_run.lock().push(who.priority);
        write_who(call.reply(), &who)?;
        Ok(())
    }
}

/// Calls `who` of `object` through the ORB of the reference.
pub fn call_who(object: &ObjectRef) -> Result<UpcallReport, SystemException> {
    static OPERATION: corelane::mapping::Operation = corelane::mapping::Operation::new("who");
    object.invoke(&OPERATION, &|_| Ok(()))?.read(|decoder| Ok(read_who(decoder)))
}

fn write_who(e: &mut Encoder<'_>, who: &UpcallReport) -> Result<(), SystemException> {
    e.write_i16(who.priority);
    e.write_u32(who.pool);
    e.write_u32(who.lane);
    e.write_i32(who.tid);
    e.write_u8(who.native);
    e.write_u64(who.connection);
    e.write_bool(who.handed_over);
    e.write_latin1_str(&who.thread)?;
    Ok(())
}

fn read_who(d: &mut Decoder<'_>) -> UpcallReport {
    let read = |d: &mut Decoder<'_>| {
        Ok::<_, corelane_wire::CdrError>(UpcallReport {
            priority: d.read_i16()?,
            pool: d.read_u32()?,
            lane: d.read_u32()?,
            tid: d.read_i32()?,
            native: d.read_u8()?,
            connection: d.read_u64()?,
            handed_over: d.read_bool()?,
            thread: d.read_string()?,
        })
    };
    read(d).expect("the results of the reporter")
}

/// Waits until `come` returns true, which is checked every 200 µs.
///
/// # Panics
/// Panics after a minute.
pub fn wait_until(mut come: impl FnMut() -> bool) {
    let end = corelane_sys::clock::now() + Duration::from_secs(60);
    while !come() {
        assert!(!end.is_past(), "the condition did not become true");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A call's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawReply {
    /// The report of a call that returned.
    Served(UpcallReport),
    /// The kind and minor code of a system exception.
    Raised(SystemExceptionKind, u32),
}

impl RawReply {
    /// Returns the report of a call that returned. Panics if the call raised an exception.
    #[must_use]
    pub fn who(self) -> UpcallReport {
        match self {
            RawReply::Served(who) => who,
            RawReply::Raised(kind, minor) => panic!("{kind:?} {minor:#x}"),
        }
    }
}

/// A client that writes its GIOP messages itself, to a TCP connection.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    key: Vec<u8>,
    next: u32,
}

/// The contents of a reference to an object of a real-time POA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceContents {
    /// The port and the priority of each lane in the TCP profile.
    pub lanes: Vec<(u16, i16)>,
    /// The priority model and the server priority; `None` if the reference has no priority model.
    pub model: Option<(u32, i16)>,
    /// The priority bands.
    pub bands: Vec<(i16, i16)>,
    /// Tags of the profiles.
    pub profiles: Vec<u32>,
    /// The policy types in the order of the reference.
    pub policies: Vec<u32>,
}

/// Decodes a reference.
///
/// # Panics
/// Panics if a profile, lane list or policy cannot be decoded.
#[must_use]
pub fn decode_reference(object: &ObjectRef) -> ReferenceContents {
    let mut said = ReferenceContents::default();
    for tagged in &object.ior().profiles {
        let profile = tagged.parse().expect("a profile");
        said.profiles.push(tagged.tag);
        if tagged.tag == 0
            && let Some(data) = profile.components.find(component_tag::TAO_ENDPOINTS)
        {
            let lanes = TaoEndpoint::parse_all(tagged.tag, data, &Limits::DEFAULT).expect("endpoints");
            said.lanes = lanes.iter().map(|lane| (lane.port.expect("a port"), lane.priority)).collect();
        }
        let Some(data) = profile.components.find(component_tag::POLICIES) else { continue };
        said.policies.clear();
        for (policy, value) in corelane_wire::ior::parse_policies(data, &Limits::DEFAULT).expect("policies") {
            said.policies.push(policy);
            match policy {
                policy_type::PRIORITY_MODEL => {
                    let value = PriorityModelValue::parse(value).expect("a model");
                    said.model = Some((value.model, value.server_priority));
                }
                policy_type::PRIORITY_BANDED_CONNECTION => said.bands = rt::parse_priority_bands(value).expect("bands"),
                _ => {}
            }
        }
    }
    said
}

impl RawClient {
    /// Connects to `port` of 127.0.0.1 for calls to `object`.
    ///
    /// # Panics
    /// Panics if the client cannot connect, or if the reference has no TCP profile.
    #[must_use]
    pub fn connect(object: &ObjectRef, port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        let mut client = RawClient { stream, key: Vec::new(), next: 1 };
        client.set_target(object);
        client
    }

    /// Directs later requests to `object`, on the same connection.
    ///
    /// # Panics
    /// Panics if the object's reference has no TCP profile.
    pub fn set_target(&mut self, object: &ObjectRef) {
        let profile = object.ior().profiles.iter().find(|profile| profile.tag == 0).expect("a TCP profile");
        self.key = profile.parse().expect("a profile").object_key.to_vec();
    }

    /// Returns the address of the client's end of the connection.
    ///
    /// # Panics
    /// Panics if the connection has ended.
    #[must_use]
    pub fn local_address(&self) -> std::net::SocketAddr {
        self.stream.local_addr().expect("an address")
    }

    /// Waits until data arrives, without reading it.
    ///
    /// # Panics
    /// Panics if no data arrives.
    pub fn wait_for_data(&self) {
        crate::raw::wait_for_data(&self.stream);
    }

    /// Returns true if data has arrived, without reading it.
    ///
    /// # Panics
    /// Panics if the connection is broken.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a mode");
        let found = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a mode");
        match found {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            found => found.expect("octets") > 0,
        }
    }

    /// Connects to 127.0.0.1, at the port of the first IP endpoint in the object's reference, for
    /// calls to the object.
    ///
    /// # Panics
    /// Panics if the reference has no such endpoint or no TCP profile, or if the client cannot
    /// connect.
    #[must_use]
    pub fn for_object(object: &ObjectRef) -> Self {
        let port =
            object.ior().profiles.iter().find_map(|profile| match profile.parse().ok()?.endpoints().first()? {
                corelane_wire::ior::ProfileEndpoint::Inet { port, .. } => Some(*port),
                _ => None,
            });
        Self::connect(object, port.expect("a port"))
    }

    /// Sends a request. `context`, if present, is the data of its service context RTCorbaPriority.
    /// Returns the request id.
    ///
    /// # Panics
    /// Panics if the request cannot be sent.
    pub fn send(&mut self, operation: &str, context: Option<&[u8]>, argument: Option<u32>) -> u32 {
        self.send_with_context(operation, context.map(|data| (context_id::RT_CORBA_PRIORITY, data)), argument)
    }

    /// Sends a request, with this service context if there is one. Returns the request id.
    ///
    /// # Panics
    /// Panics if the request cannot be sent.
    pub fn send_with_context(&mut self, operation: &str, context: Option<(u32, &[u8])>, argument: Option<u32>) -> u32 {
        self.send_with_contexts(operation, context.as_slice(), argument)
    }

    /// Sends a request with these service contexts. Returns the request id.
    ///
    /// # Panics
    /// Panics if the request cannot be sent.
    pub fn send_with_contexts(&mut self, operation: &str, contexts: &[(u32, &[u8])], argument: Option<u32>) -> u32 {
        let mut message = Encoder::new();
        let contexts: Vec<_> = contexts.iter().map(|&(id, data)| ServiceContext { id, data }).collect();
        let head = RequestHeader {
            version: Version::GIOP_1_2,
            request_id: self.next,
            response_expected: ResponseExpected::Target,
            target: TargetAddress::Key(&self.key),
            operation: operation.as_bytes(),
            contexts: &contexts,
        };
        giop::write_request_header(&mut message, &head).expect("a header");
        if let Some(argument) = argument {
            message.write_u32(argument);
        }
        giop::finish_message(&mut message).expect("a message");
        self.stream.write_all(&message.to_vec()).expect("a request sent");
        self.next += 1;
        self.next - 1
    }

    /// Reads the next reply. Returns the request id, the priority in the service context
    /// RTCorbaPriority, and the outcome.
    ///
    /// # Panics
    /// Panics if no reply arrives, or if the reply has neither a report nor a system exception.
    pub fn receive_reply(&mut self) -> (u32, Option<i16>, RawReply) {
        let (header, message) = self.receive_message();
        let limits = Limits::DEFAULT;
        let reply = Reply::parse(&message, &header, &limits).expect("a reply");
        let echo = reply.contexts.find(context_id::RT_CORBA_PRIORITY);
        let echo = echo.map(|data| rt::parse_priority_context(data).expect("a priority"));
        let mut body =
            Decoder::new(&message, header.endian).at_position(reply.body_offset).with_version(header.version);
        let answer = match reply.status {
            ReplyStatus::NoException => RawReply::Served(read_who(&mut body)),
            ReplyStatus::SystemException => {
                let exception = SystemExceptionBody::read(&mut body).expect("an exception");
                RawReply::Raised(exception.kind, exception.minor)
            }
            other => panic!("{other:?}"),
        };
        (reply.request_id, echo, answer)
    }

    /// Reads the next reply of an operation without results. Returns the system exception, if there
    /// is one.
    ///
    /// # Panics
    /// Panics if no reply arrives.
    pub fn receive_void_reply(&mut self) -> Option<(SystemExceptionKind, u32)> {
        let (header, message) = self.receive_message();
        let limits = Limits::DEFAULT;
        let reply = Reply::parse(&message, &header, &limits).expect("a reply");
        let mut body =
            Decoder::new(&message, header.endian).at_position(reply.body_offset).with_version(header.version);
        match reply.status {
            ReplyStatus::NoException => None,
            _ => SystemExceptionBody::read(&mut body).ok().map(|exception| (exception.kind, exception.minor)),
        }
    }

    /// Reads the next reply and returns its request id.
    ///
    /// # Panics
    /// Panics if no reply arrives.
    pub fn receive_reply_id(&mut self) -> u32 {
        let (header, message) = self.receive_message();
        Reply::parse(&message, &header, &Limits::DEFAULT).expect("a reply").request_id
    }

    fn receive_message(&mut self) -> (Header, Vec<u8>) {
        let mut message = vec![0; 12];
        self.stream.read_exact(&mut message).expect("a reply");
        let header = Header::parse(message.first_chunk().expect("a header")).expect("GIOP");
        message.resize(header.total_len(), 0);
        self.stream.read_exact(&mut message[12..]).expect("the rest of the reply");
        (header, message)
    }

    /// Reads and ignores messages up to CloseConnection, then closes the connection.
    pub fn read_until_close(mut self) {
        while self.receive_message().0.kind != MessageKind::CloseConnection {}
    }

    /// Calls `who`, with the service context RTCorbaPriority if `priority` is present.
    pub fn who(&mut self, priority: Option<i16>) -> RawReply {
        let data = priority.map(rt::encode_priority_context);
        self.send("who", data.as_ref().map(<[u8; 4]>::as_slice), None);
        self.receive_reply().2
    }

    /// Sends a request with `priority` in the service context RTCorbaPriority. Returns the request
    /// id.
    pub fn send_at_priority(&mut self, operation: &str, priority: i16, argument: Option<u32>) -> u32 {
        self.send(operation, Some(&rt::encode_priority_context(priority)), argument)
    }
}

/// Makes an ORB that serves CORBA priorities in the kernel's ordinary scheduling class.
///
/// # Panics
/// Panics if the ORB cannot be made.
#[must_use]
pub fn fair_orb() -> Orb {
    let config = RtConfig::default().scheduling(SchedulingClass::Fair);
    let orb = Orb::builder().real_time(config).listen("tcp:127.0.0.1:0").build().expect("a server");
    orb.root_poa().manager().activate().expect("an active manager");
    orb
}

/// Makes an ORB that serves CORBA priorities with SCHED_FIFO.
///
/// # Panics
/// Panics if the ORB cannot be made, or if SCHED_FIFO is not permitted.
#[must_use]
pub fn fifo_orb() -> Orb {
    require_fifo();
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().expect("a server");
    orb.root_poa().manager().activate().expect("an active manager");
    orb
}

/// Asserts that SCHED_FIFO is permitted, because a test must not pass without it.
///
/// # Panics
/// Panics if SCHED_FIFO is not permitted.
pub fn require_fifo() {
    let tried = corelane_sys::thread::ThreadBuilder::new().scheduling(Scheduling::Fifo(1)).spawn(|| ());
    let permitted = tried.map(|thread| thread.join().is_ok());
    assert!(matches!(permitted, Ok(true)), "SCHED_FIFO is not permitted here: {permitted:?}");
}
