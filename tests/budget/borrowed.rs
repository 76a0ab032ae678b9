//! Large sequences of octets and numbers are not copied between transport and application.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use corelane::{Dispatch, Octets, Orb, OrbBuilder, PoolConfig, SystemException, Transports};
use corelane_net::{
    Peer, SharedMemoryTransport, ShutdownDirection, Stream, TcpTransport, Transport, UnixTransport, WaitLimit,
};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::EVERY_DISPATCH;
use corelane_tests::stream_wrapper::wrap_streams;

corelane::include_idl!("large");
use large::{Store, StoreRef};

const LENGTH: usize = 16 << 20;
/// Bound, in bytes, of the part of an argument that the ORB receives together with the message's
/// header, and copies.
const WITH_THE_HEAD: usize = 16 << 10;

/// Size in bytes below which the ORB copies the remainder of a partly sent reply.
const SMALL_REST: usize = 16 << 10;

type Place = Range<usize>;

fn place<T>(elements: &[T]) -> Place {
    let octets = elements.as_ptr_range();
    octets.start.addr()..octets.end.addr()
}

#[derive(Default)]
struct Seen {
    received: Vec<Place>,
    sent: Vec<Place>,
    fault: SendFault,
}

/// A fault of sending, which a test asks for.
#[derive(Default)]
enum SendFault {
    #[default]
    None,
    /// The next send reports one byte less than it has sent.
    AfterNext,
    /// The next send fails.
    Next,
}

#[derive(Clone)]
struct Log(Arc<Mutex<Seen>>);

impl Log {
    fn new() -> Self {
        Log(Arc::new(Mutex::new("buffers of the streams", LockScope::Orb, Seen::default())))
    }

    fn take(&self) -> Seen {
        std::mem::take(&mut *self.0.lock())
    }
}

struct Noted {
    inner: Box<dyn Stream>,
    log: Log,
}

impl fmt::Debug for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Stream for Noted {
    fn recv(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize> {
        let count = self.inner.recv(buffer, wait)?;
        self.log.0.lock().received.push(place(&buffer[..count]));
        Ok(count)
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        // The log is locked during the send, because the peer may get the bytes before they are
        // recorded.
        let mut log = self.log.0.lock();
        let fault = std::mem::take(&mut log.fault);
        if matches!(fault, SendFault::Next) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut count = self.inner.send_vectored(slices, wait)?;
        if matches!(fault, SendFault::AfterNext) {
            log.fault = SendFault::Next;
            count -= 1;
        }
        let mut left = count;
        for slice in slices {
            let taken = slice.len().min(left);
            log.sent.push(place(&slice[..taken]));
            left -= taken;
        }
        Ok(count)
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness_descriptor()
    }

    fn reports_every_arrival(&self) -> bool {
        self.inner.reports_every_arrival()
    }

    fn arm_readiness(&self) -> io::Result<Option<bool>> {
        self.inner.arm_readiness()
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        self.inner.set_coarse_timeouts(receive, send)
    }

    fn shutdown(&self, direction: ShutdownDirection) {
        self.inner.shutdown(direction);
    }

    fn peer(&self) -> &Peer {
        self.inner.peer()
    }
}

fn covered(whole: &Place, mut places: Vec<Place>) -> usize {
    places.sort_by_key(|place| place.start);
    let (mut octets, mut end) = (0, whole.start);
    for place in places {
        let (from, to) = (place.start.max(end), place.end.min(whole.end));
        octets += to.saturating_sub(from);
        end = end.max(to);
    }
    octets
}

struct Noting {
    at: Arc<Mutex<Place>>,
    given: Octets,
}

impl Store for Noting {
    fn keep(&self, v: &[u8]) -> Result<u32, SystemException> {
        *self.at.lock() = place(v);
        Ok(v.iter().map(|octet| u32::from(*octet)).sum())
    }

    fn add(&self, v: &[i32]) -> Result<u32, SystemException> {
        *self.at.lock() = place(v);
        Ok(v.iter().fold(0, |sum, number| sum.wrapping_add(number.cast_unsigned())))
    }

    fn give(&self) -> Result<Octets, SystemException> {
        *self.at.lock() = place(self.given.as_slice());
        Ok(self.given.clone())
    }

    fn echo(&self, v: &[u8]) -> Result<Octets, SystemException> {
        *self.at.lock() = place(v);
        corelane::keep_octets(v)
    }
}

fn noted(transport: Arc<dyn Transport>) -> (OrbBuilder, Log) {
    let log = Log::new();
    let noting = log.clone();
    let transport = wrap_streams(transport, move |inner, _| Box::new(Noted { inner, log: noting.clone() }));
    (Orb::builder().transports(Transports::new(vec![transport])), log)
}

fn transport(carrier: &str) -> Arc<dyn Transport> {
    match carrier {
        "tcp" => Arc::new(TcpTransport::new()),
        "unix" => Arc::new(UnixTransport),
        _ => Arc::new(SharedMemoryTransport::default()),
    }
}

fn nothing_is_copied(carrier: &str, dispatch: Dispatch) {
    let path = std::env::temp_dir().join(format!("corelane-borrowed-{}-{carrier}-{dispatch:?}", std::process::id()));
    let address = match carrier {
        "tcp" => "tcp:127.0.0.1:0".to_owned(),
        _ => format!("{carrier}:{}", path.display()),
    };
    let (builder, servers) = noted(transport(carrier));
    let server = builder.pool(PoolConfig::default().dispatch(dispatch)).listen(address).build().unwrap();
    let at = Arc::new(Mutex::new("address of the argument or result", LockScope::Orb, 0..0));
    let servant = Noting { at: Arc::clone(&at), given: Octets::from(vec![3; LENGTH]) };
    let object = server.root_poa().activate(&Store::servant(servant)).unwrap();
    server.root_poa().manager().activate().unwrap();
    let (builder, clients) = noted(transport(carrier));
    let client = builder.build().unwrap();
    let store = StoreRef::from_object(client.string_to_object(&object.to_string()).unwrap().unwrap());

    let octets = vec![1_u8; LENGTH];
    let numbers = vec![1_i32; LENGTH / 4];
    type Call<'a> = &'a dyn Fn() -> Place;
    let calls: [(&str, Call<'_>); 2] = [
        ("octets", &|| {
            assert_eq!(store.keep(&octets).unwrap(), LENGTH as u32);
            place(&octets)
        }),
        ("longs", &|| {
            assert_eq!(store.add(&numbers).unwrap(), LENGTH as u32 / 4);
            place(&numbers)
        }),
    ];
    // Each call is made twice, because the first may enlarge a buffer that the second uses.
    for (what, call) in calls.into_iter().chain(calls) {
        let what = format!("{what} over {carrier}, {dispatch:?}");
        drop((clients.take(), servers.take()));
        let argument = call();
        let (sent, received) = (clients.take().sent, servers.take().received);
        assert_eq!(covered(&argument, sent), LENGTH, "{what}: a copy was sent");
        check_received(&at.lock(), received, &what);
    }
    let what = format!("a result over {carrier}, {dispatch:?}");
    drop((clients.take(), servers.take()));
    let result = store.give().unwrap();
    check_sent(&at.lock(), LENGTH, servers.take().sent, &what);
    check_received(&place(&result), clients.take().received, &what);
    // The servant keeps its argument and returns it, so the server sends the memory into which it
    // has received the argument.
    for octets in [&octets, &octets[..LENGTH / 2]] {
        let what = format!("an echo of {} octets over {carrier}, {dispatch:?}", octets.len());
        drop((clients.take(), servers.take()));
        let result = store.echo(octets).unwrap();
        assert!(result == *octets, "{what}");
        let (at, seen) = (at.lock().clone(), servers.take());
        check_sent(&at, octets.len(), seen.sent, &what);
        let received = covered(&at, seen.received);
        assert!(received >= octets.len() - WITH_THE_HEAD, "{what}: {received} octets were received there");
    }
}

fn check_sent(from: &Place, length: usize, sent: Vec<Place>, what: &str) {
    assert_eq!(from.len(), length, "{what}");
    let there = covered(from, sent);
    assert!(there > length - SMALL_REST, "{what}: {} octets were sent from other memory", length - there);
}

fn check_received(found: &Place, received: Vec<Place>, what: &str) {
    assert_eq!(found.len(), LENGTH, "{what}");
    let there = covered(found, received);
    assert!(there >= LENGTH - WITH_THE_HEAD, "{what}: {} octets were received into other memory", LENGTH - there);
}

#[test]
fn large_sequences_are_not_copied() {
    for carrier in ["tcp", "unix", "shm"] {
        for dispatch in EVERY_DISPATCH {
            nothing_is_copied(carrier, dispatch);
        }
    }
}

#[test]
fn overlapping_ranges_are_counted_once() {
    assert_eq!(covered(&(10..20), vec![0..5, 8..12, 11..14, 18..30, 13..14]), 6);
    assert_eq!(covered(&(10..20), vec![20..30, 0..10]), 0);
    assert_eq!(covered(&(10..20), vec![0..30, 12..14]), 10);
}

/// Results that are received in memory of the caller (`OPERATION_into`).
mod own_memory {
    use std::fmt::Debug;
    use std::io::{self, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use corelane::{
        CdrError, Completion, Octets, Orb, ResultMemory, SystemException, SystemExceptionKind as Kind, Transports,
    };
    use corelane_net::TcpTransport;
    use corelane_sys::counters;
    use corelane_tests::scripted::{self, REPLY, ScriptedServer, message, reply_start};
    use corelane_tests::stream_wrapper::wrap_streams;

    use super::large::{
        Colour, FewSamples, Longs, Refused, Sample, Samples, Source, SourceRef, Uneven, Unevens, source::NamedError,
    };
    use super::{SendFault, WITH_THE_HEAD, covered, noted, place};

    /// Size in bytes of the large results.
    const OCTETS: usize = 4 << 20;

    fn octet(index: usize) -> u8 {
        (index % 251) as u8
    }

    fn long(index: usize) -> i32 {
        index as i32 - 7
    }

    fn sample(index: usize) -> Sample {
        Sample { id: index as u32, height: index as f32 / 2.0, weight: -(index as f64) }
    }

    fn uneven(index: usize) -> Uneven {
        Uneven { id: octet(index), weight: index as f64, paint: [Colour::Red, Colour::Green][index % 2] }
    }

    fn many<T>(count: u32, element: fn(usize) -> T) -> Vec<T> {
        (0..count as usize).map(element).collect()
    }

    struct Maker;

    impl Source for Maker {
        fn make_octets(&self, count: u32) -> Result<Octets, SystemException> {
            Ok(many(count, octet).into())
        }

        fn make_longs(&self, count: u32) -> Result<Longs, SystemException> {
            Ok(many(count, long))
        }

        fn make_samples(&self, count: u32) -> Result<Samples, SystemException> {
            Ok(many(count, sample))
        }

        fn make_unevens(&self, count: u32) -> Result<Unevens, SystemException> {
            Ok(many(count, uneven))
        }

        fn make_few(&self, count: u32) -> Result<FewSamples, SystemException> {
            Ok(many(count, sample))
        }

        fn named(&self, count: u32, name: &str) -> Result<(String, Samples), NamedError> {
            if count == 0 {
                return Err(Refused { reason: 7 }.into());
            }
            Ok((name.to_uppercase(), many(count, sample)))
        }
    }

    fn serve(address: &str) -> (Orb, SourceRef) {
        let server = Orb::builder().listen(address).build().unwrap();
        let object = server.root_poa().activate(&Source::servant(Maker)).unwrap();
        server.root_poa().manager().activate().unwrap();
        let source = SourceRef::from_object(object);
        (server, source)
    }

    fn remote(client: &Orb, source: &SourceRef) -> SourceRef {
        client.string_to_reference(&source.to_string()).unwrap()
    }

    /// Checks a large result over a client whose streams are noted, and the allocations of the same
    /// calls over another client.
    fn check<T: Copy + Debug + Default + PartialEq>(
        what: &str,
        element: fn(usize) -> T,
        is_direct: bool,
        (noting, received): (&SourceRef, &super::Log),
        plain: &SourceRef,
        call: impl Fn(&SourceRef, u32, &mut [T]) -> Result<usize, SystemException>,
    ) {
        let count = OCTETS / size_of::<T>();
        let mut memory = vec![T::default(); count + 1];
        // The first call connects, and receives its reply as a whole.
        assert_eq!(call(noting, 1, &mut memory), Ok(1));
        for _ in 0..2 {
            memory.fill(T::default());
            drop(received.take());
            assert_eq!(call(noting, count as u32, &mut memory), Ok(count), "{what}");
            assert!(memory.iter().take(count).copied().eq((0..count).map(element)), "{what}: other elements");
            assert_eq!(memory[count], T::default(), "{what}: an element behind the result has changed");
            let there = covered(&place(&memory[..count]), received.take().received);
            if is_direct {
                let least = count * size_of::<T>() - WITH_THE_HEAD;
                assert!(there >= least, "{what}: {there} octets were received in the caller's memory");
            } else {
                assert_eq!(there, 0, "{what}");
            }
        }
        (0..3).for_each(|_| assert_eq!(call(plain, count as u32, &mut memory), Ok(count)));
        let before = counters::snapshot();
        (0..10).for_each(|_| assert_eq!(call(plain, count as u32, &mut memory), Ok(count)));
        assert_eq!((counters::snapshot() - before).allocations, 0, "{what}: allocations");
    }

    #[test]
    fn large_results_are_received_in_the_memory_of_the_caller() {
        let path = std::env::temp_dir().join(format!("corelane-own-memory-{}", std::process::id()));
        for (carrier, address) in [
            ("tcp", "tcp:127.0.0.1:0".to_owned()),
            ("unix", format!("unix:{}.unix", path.display())),
            ("shm", format!("shm:{}.shm", path.display())),
        ] {
            let (_server, source) = serve(&address);
            let (builder, received) = noted(super::transport(carrier));
            let (noting, plain) = (builder.build().unwrap(), Orb::new().unwrap());
            let (noting, plain) = (remote(&noting, &source), remote(&plain, &source));
            let (noting, what) = ((&noting, &received), |what| format!("{what} over {carrier}"));
            check(&what("octets"), octet, true, noting, &plain, |source, count, memory| {
                source.make_octets_into(count, memory)
            });
            check(&what("longs"), long, true, noting, &plain, |source, count, memory| {
                source.make_longs_into(count, memory)
            });
            check(&what("structures"), sample, true, noting, &plain, |source, count, memory| {
                source.make_samples_into(count, memory)
            });
            check(&what("structures with padding"), uneven, false, noting, &plain, |source, count, memory| {
                source.make_unevens_into(count, memory)
            });
        }
    }

    #[test]
    fn results_of_every_size_are_those_of_the_plain_operation() {
        let (_server, source) = serve("tcp:127.0.0.1:0");
        let client = Orb::new().unwrap();
        let remote = remote(&client, &source);
        let mut samples = Vec::new();
        let mut unevens = Vec::new();
        // Few elements, and sizes around that of a reply that is read at once. With the odd step,
        // the end of the first read falls on different parts of an element.
        for count in [0, 1, 2, 3, 500].into_iter().chain((600..3000).step_by(37)) {
            for source in [&remote, &source] {
                assert_eq!(source.make_samples_into(count, &mut samples), Ok(count as usize));
                assert_eq!(samples, many(count, sample));
                assert_eq!(source.make_unevens_into(count, &mut unevens), Ok(count as usize));
                assert_eq!(unevens, many(count, uneven));
            }
        }
        for source in [&remote, &source] {
            assert_eq!(source.named_into(3000, "ada", &mut samples).unwrap(), ("ADA".to_owned(), 3000));
            assert_eq!(samples, many(3000, sample));
            let Err(NamedError::Refused(refused)) = source.named_into(0, "ada", &mut samples) else {
                panic!("accepted")
            };
            assert_eq!(refused.reason, 7);
            assert_eq!(source.make_few_into(4, samples.as_mut_slice()), Ok(4));
        }
        assert_eq!(remote.make_few_into(5, samples.as_mut_slice()).unwrap_err().kind(), Kind::Marshal);
    }

    #[test]
    fn memory_that_is_too_small_is_refused_with_both_lengths() {
        let (_server, source) = serve("tcp:127.0.0.1:0");
        let streams = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&streams);
        let transport = wrap_streams(Arc::new(TcpTransport::new()), move |inner, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            inner
        });
        let client = Orb::builder().transports(Transports::new(vec![transport])).build().unwrap();
        let remote = remote(&client, &source);
        let mut memory = vec![sample(0); 99_999];
        // The first call connects, and receives its reply as a whole. Of the long reply, a part is in
        // the connection's buffer when its length is refused.
        for count in [100, 100_000] {
            let room = &mut memory[..count - 1];
            for source in [&remote, &source] {
                let exception = source.make_samples_into(count as u32, &mut *room).unwrap_err();
                assert_eq!(exception.minor(), CdrError::ResultMemoryTooSmall.minor());
                assert_eq!((exception.kind(), exception.completed()), (Kind::BadParam, Completion::Yes));
                let text = format!("the result has {count} elements, the caller's memory has room for {}", count - 1);
                assert!(exception.to_string().contains(&text), "{exception}");
                assert_eq!(source.make_samples_into(count as u32 - 1, &mut *room), Ok(count - 1));
                assert!(room.iter().copied().eq((0..count - 1).map(sample)));
            }
        }
        assert_eq!(streams.load(Ordering::SeqCst), 1, "the calls used another connection");
    }

    /// A reply whose only result is a sequence of `count` elements. The first four octets of the
    /// elements are 0. `elements` are the further octets, which begin at a multiple of 8 octets in
    /// the reply.
    fn reply(id: u32, count: u32, elements: &[u8]) -> Vec<u8> {
        message(REPLY, false, &[&reply_start(id, 0)[..], &count.to_le_bytes(), &[0; 4], elements].concat())
    }

    /// Starts a server whose requests `answer` answers, and connects to it. `answer` gets the number of
    /// earlier requests. The first request of all, which connects, is answered here, because the
    /// client receives its reply as a whole.
    fn connect(
        orb: &Orb,
        answer: impl Fn(&mut TcpStream, u32, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> (ScriptedServer, SourceRef) {
        let requests = AtomicUsize::new(0);
        let server = scripted::serve(0, move |stream: &mut TcpStream, id| {
            match requests.fetch_add(1, Ordering::SeqCst).checked_sub(1) {
                None => stream.write_all(&reply(id, 0, &[])),
                Some(earlier) => answer(stream, id, earlier),
            }
        });
        let object = orb.string_to_object(&format!("corbaloc::1.2@{}/Key", server.address)).unwrap().unwrap();
        let source = SourceRef::from_object(object.with_timeout(Duration::from_secs(60)));
        assert_eq!(source.make_octets_into(0, &mut Vec::new()), Ok(0));
        (server, source)
    }

    const COUNT: u32 = 20_000;

    #[test]
    fn result_in_the_other_byte_order_is_swapped_in_the_memory_of_the_caller() {
        let orb = Orb::new().unwrap();
        let (_server, source) = connect(&orb, |stream, id, _| {
            let elements = many(COUNT, sample).into_iter().flat_map(|sample| {
                // Only the first element needs padding before its double.
                let padding: &[u8] = if sample.id == 0 { &[0; 4] } else { &[] };
                [&sample.id.to_be_bytes()[..], &sample.height.to_be_bytes(), padding, &sample.weight.to_be_bytes()]
                    .concat()
            });
            let body = [id, 0, 0, COUNT].into_iter().flat_map(u32::to_be_bytes).chain(elements).collect::<Vec<_>>();
            stream.write_all(b"GIOP\x01\x02\x00\x01")?;
            stream.write_all(&u32::try_from(body.len()).unwrap().to_be_bytes())?;
            stream.write_all(&body)
        });
        let mut samples = vec![sample(0); COUNT as usize];
        assert_eq!(source.make_samples_into(COUNT, &mut *samples), Ok(COUNT as usize));
        assert_eq!(samples, many(COUNT, sample));
    }

    #[test]
    fn connection_that_ends_in_the_result_fails_the_call_and_is_not_used_again() {
        let orb = Orb::new().unwrap();
        let (server, source) = connect(&orb, |stream, id, earlier| {
            let whole = reply(id, COUNT, &vec![0; COUNT as usize * 16]);
            if earlier > 0 {
                return stream.write_all(&whole);
            }
            stream.write_all(&whole[..40_000])?;
            Err(io::ErrorKind::ConnectionAborted.into())
        });
        let mut samples = vec![sample(0); COUNT as usize];
        let exception = source.make_samples_into(COUNT, &mut *samples).unwrap_err();
        assert_eq!((exception.kind(), exception.completed()), (Kind::CommFailure, Completion::Maybe), "{exception}");
        assert_eq!(source.make_samples_into(COUNT, &mut *samples), Ok(COUNT as usize));
        assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn connection_that_has_failed_during_the_request_is_not_used_after_the_result() {
        let (builder, streams) = noted(super::transport("tcp"));
        let orb = builder.build().unwrap();
        let (server, source) =
            connect(&orb, |stream, id, _| stream.write_all(&reply(id, COUNT, &vec![0; COUNT as usize * 16])));
        let mut samples = vec![sample(1); COUNT as usize];
        streams.0.lock().fault = SendFault::AfterNext;
        for connections in [1, 2] {
            assert_eq!(source.make_samples_into(COUNT, &mut *samples), Ok(COUNT as usize));
            assert_eq!(server.connections.load(Ordering::SeqCst), connections);
        }
    }

    #[test]
    fn call_that_times_out_in_the_result_leaves_no_rest_to_the_next_call() {
        let mut samples = vec![sample(1); COUNT as usize];
        // The time-out is doubled until the beginning of the result arrives in time.
        for timeout in (0..8).map(|doublings| Duration::from_millis(200 << doublings)) {
            let (builder, streams) = noted(super::transport("tcp"));
            // With one connection, the next call would use it although it owes a reply.
            let orb = builder.max_connections_per_server(1).build().unwrap();
            let (server, source) = connect(&orb, |stream, id, earlier| {
                let whole = reply(id, COUNT, &vec![0; COUNT as usize * 16]);
                stream.write_all(if earlier == 0 { &whole[..40_000] } else { &whole })
            });
            let exception = source.with_timeout(timeout).make_samples_into(COUNT, &mut *samples).unwrap_err();
            assert_eq!((exception.kind(), exception.completed()), (Kind::Timeout, Completion::Maybe), "{exception}");
            if covered(&place(&samples), streams.take().received) == 0 {
                continue;
            }
            assert_eq!(source.make_samples_into(COUNT, &mut *samples), Ok(COUNT as usize));
            assert_eq!(samples, vec![Sample::default(); COUNT as usize]);
            assert_eq!(server.connections.load(Ordering::SeqCst), 2);
            return;
        }
        panic!("no result has arrived in time");
    }

    #[test]
    fn undefined_enumerator_is_refused_and_the_connection_is_used_again() {
        let orb = Orb::new().unwrap();
        let (server, source) = connect(&orb, |stream, id, earlier| {
            let mut elements = vec![0; COUNT as usize * 16 - 4];
            elements[5_000 * 16 + 8] = if earlier == 0 { 2 } else { 1 };
            stream.write_all(&reply(id, COUNT, &elements))
        });
        let mut unevens = vec![uneven(0); COUNT as usize];
        let exception = source.make_unevens_into(COUNT, &mut *unevens).unwrap_err();
        assert_eq!(
            (exception.kind(), exception.minor()),
            (Kind::Marshal, CdrError::EnumOutOfRange.minor()),
            "{exception}"
        );
        assert_eq!(source.make_unevens_into(COUNT, &mut *unevens), Ok(COUNT as usize));
        assert_eq!(unevens.iter().filter(|uneven| uneven.paint == Colour::Green).count(), 1);
        assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn vector_is_not_enlarged_for_a_result_that_has_not_arrived() {
        /// A vector that notes for how many elements it was enlarged.
        struct Growing(Vec<u8>, usize);

        impl ResultMemory<u8> for Growing {
            fn room(&self) -> usize {
                ResultMemory::room(&self.0)
            }

            fn can_grow(&self) -> bool {
                true
            }

            fn prepare(&mut self, len: usize, value: u8) -> &mut [u8] {
                self.1 = self.1.max(len.saturating_sub(self.0.capacity()));
                self.0.prepare(len, value)
            }

            fn clear(&mut self) {
                self.0.clear();
            }
        }

        let orb = Orb::new().unwrap();
        let (_server, source) = connect(&orb, |stream, id, _| {
            let whole = reply(id, 1 << 20, &vec![0; (1 << 20) - 4]);
            stream.write_all(&whole[..40_000])?;
            Err(io::ErrorKind::ConnectionAborted.into())
        });
        let mut memory = Growing(Vec::new(), 0);
        let exception = source.make_octets_into(1 << 20, &mut memory).unwrap_err();
        assert_eq!((exception.kind(), memory.1), (Kind::CommFailure, 0), "{exception}");
    }
}
