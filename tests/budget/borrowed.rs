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

#[path = "borrowed/own_memory.rs"]
mod own_memory;

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
        let count = self.inner.send_vectored(slices, wait)?;
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
