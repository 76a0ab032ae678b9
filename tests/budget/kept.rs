//! Octets of requests that servants keep: their addresses, their memory, and its maximum.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane::{
    Dispatch, Endpoint, Octets, Orb, OrbBuilder, PoolConfig, SystemException, SystemExceptionKind as Kind, minor,
};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::{clock, counters};
use corelane_tests::EVERY_DISPATCH;
use corelane_tests::raw::request;

corelane::include_idl!("large");
use large::{Store, StoreRef};

const KEPT: usize = 16 << 20;
const MIB: usize = 1 << 20;

#[derive(Default)]
struct Hoarder(Arc<Hoard>);

struct Hoard {
    kept: Mutex<Vec<Octets>>,
    lent_at: Mutex<Vec<usize>>,
    refused: Mutex<Vec<String>>,
    allocated: Mutex<u64>,
    echoes: AtomicUsize,
}

impl Default for Hoard {
    fn default() -> Self {
        Hoard {
            kept: Mutex::new("kept octets of a test", LockScope::Orb, Vec::new()),
            lent_at: Mutex::new("addresses of a test", LockScope::Orb, Vec::new()),
            refused: Mutex::new("exceptions of a test", LockScope::Orb, Vec::new()),
            allocated: Mutex::new("bytes of a test", LockScope::Orb, 0),
            echoes: AtomicUsize::new(0),
        }
    }
}

impl Store for Hoarder {
    fn keep(&self, v: &[u8]) -> Result<u32, SystemException> {
        let before = counters::snapshot();
        let kept = corelane::keep_octets(v);
        *self.0.allocated.lock() += (counters::snapshot() - before).allocated_bytes;
        let kept = kept.inspect_err(|refused| self.0.refused.lock().push(refused.to_string()))?;
        self.0.lent_at.lock().push(v.as_ptr().addr());
        let mut all = self.0.kept.lock();
        all.push(kept);
        Ok(all.len() as u32)
    }

    fn add(&self, v: &[i32]) -> Result<u32, SystemException> {
        Ok(v.len() as u32)
    }

    fn give(&self) -> Result<Octets, SystemException> {
        Ok(self.0.kept.lock().first().cloned().unwrap_or_default())
    }

    fn echo(&self, v: &[u8]) -> Result<Octets, SystemException> {
        let kept = corelane::keep_octets(v);
        self.0.echoes.fetch_add(1, Ordering::SeqCst);
        kept.inspect_err(|refused| self.0.refused.lock().push(refused.to_string()))
    }
}

struct Server {
    orb: Orb,
    hoard: Arc<Hoard>,
    object: corelane::ObjectRef,
}

fn serve_with(builder: OrbBuilder) -> Server {
    let orb = builder.listen("tcp:127.0.0.1:0").build().unwrap();
    let hoard = Arc::new(Hoard::default());
    let object = orb.root_poa().activate(&Store::servant(Hoarder(Arc::clone(&hoard)))).unwrap();
    orb.root_poa().manager().activate().unwrap();
    Server { orb, hoard, object }
}

fn serve(dispatch: Dispatch) -> Server {
    serve_with(Orb::builder().pool(PoolConfig::default().dispatch(dispatch)))
}

impl Server {
    fn client(&self, builder: OrbBuilder) -> (Orb, StoreRef) {
        let orb = builder.build().unwrap();
        let object = orb.string_to_object(&self.object.to_string()).unwrap().unwrap();
        (orb, StoreRef::from_object(object))
    }

    /// Drops the kept octets and waits until the ORB counts no kept memory. The thread of a request
    /// frees the message shortly after the reply.
    fn forget(&self) {
        let kept = std::mem::take(&mut *self.hoard.kept.lock());
        drop(kept);
        let end = clock::now() + Duration::from_secs(60);
        while self.orb.kept_memory() > 0 {
            assert!(!end.is_past(), "{} bytes still count", self.orb.kept_memory());
            std::thread::yield_now();
        }
    }
}

fn numbered(length: usize, number: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 251 + index + number) as u8).collect()
}

fn with_fragments(size: Option<usize>) -> OrbBuilder {
    match size {
        Some(size) => Orb::builder().max_fragment_size(size),
        None => Orb::builder(),
    }
}

#[test]
fn kept_octets_stay_at_their_address_with_their_content() {
    for (dispatch, fragments) in EVERY_DISPATCH.into_iter().flat_map(|each| [(each, None), (each, Some(64 << 10))]) {
        let what = format!("{dispatch:?}, fragments of {fragments:?}");
        let server = serve(dispatch);
        let (_orb, store) = server.client(with_fragments(fragments));
        let sizes = [16 << 10, 40_000, 100_000, MIB, 2 * MIB, 300_000];
        for (number, size) in sizes.into_iter().enumerate() {
            assert_eq!(store.keep(&numbered(size, number)).unwrap(), number as u32 + 1, "{what}");
            // The message of this request must not overwrite kept octets.
            assert!(store.echo(&numbered(size, 77)).unwrap() == numbered(size, 77)[..], "{what}");
        }
        let kept = server.hoard.kept.lock().clone();
        for (number, (octets, at)) in kept.iter().zip(server.hoard.lent_at.lock().iter()).enumerate() {
            assert_eq!(octets.as_ptr().addr(), *at, "{what}: octets {number} are a copy");
            assert!(*octets == numbered(sizes[number], number)[..], "{what}: octets {number} have changed");
        }
        let allocated = *server.hoard.allocated.lock();
        assert!(allocated < 4096, "{what}: keeping {} octets allocated {allocated}", sizes.iter().sum::<usize>());
        // Octets that arrive in fragments may take twice their size in memory.
        let total: usize = sizes.iter().sum();
        assert!((total..3 * total).contains(&server.orb.kept_memory()), "{what}: {}", server.orb.kept_memory());
        assert!(store.give().unwrap() == kept[0][..], "{what}");
        drop(kept);
        server.forget();
    }
}

#[test]
fn small_octets_are_copied_and_count() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let (_orb, store) = server.client(Orb::builder());
    for _ in 0..10 {
        store.keep(&[7; 1000]).unwrap();
    }
    assert!((10_000..20_000).contains(&server.orb.kept_memory()), "{}", server.orb.kept_memory());
    server.forget();
    // In a collocated call the octets belong to the caller, and their copy does not count.
    StoreRef::from_object(server.object.clone()).keep(&[7; 100_000]).unwrap();
    assert!(*server.hoard.kept.lock()[0] == [7; 100_000]);
    assert_eq!(server.orb.kept_memory(), 0);
}

fn fill(store: &StoreRef, size: usize) -> (usize, SystemException) {
    let argument = vec![7; size];
    for kept in 0..KEPT {
        if let Err(refused) = store.keep(&argument) {
            return (kept, refused);
        }
    }
    panic!("the server keeps arguments without a maximum");
}

#[test]
fn servant_that_keeps_every_argument_meets_the_maximum_and_other_connections_do_not() {
    for dispatch in EVERY_DISPATCH {
        for size in [100, 20_000, MIB] {
            let what = format!("{dispatch:?}, arguments of {size} octets");
            let pool = PoolConfig::default().dispatch(dispatch);
            let server = serve_with(Orb::builder().pool(pool).max_kept_memory(KEPT));
            let (_flood, flooding) = server.client(Orb::builder());
            let (_good, good) = server.client(Orb::builder());
            good.keep(&[1; 100_000]).unwrap();
            let (kept, refused) = fill(&flooding, size);
            assert_eq!((refused.kind(), refused.minor()), (Kind::ImpLimit, minor::KEPT_OCTETS), "{what}: {refused}");
            assert!(kept * size <= KEPT / 2 && kept > 0, "{what}: {kept} arguments");
            let text = server.hoard.refused.lock().pop().unwrap();
            let expected = format!("at most {} are in use (half of OrbBuilder::max_kept_memory)", KEPT / 2);
            assert!(text.contains(&expected), "{what}: {text}");
            assert_eq!(flooding.add(&[1; 50_000]).unwrap(), 50_000, "{what}");
            assert_eq!(flooding.keep(&vec![7; size]).unwrap_err().minor(), minor::KEPT_OCTETS, "{what}");
            assert!(good.echo(&[3; MIB]).unwrap() == [3; MIB][..], "{what}");
            good.keep(&[2; MIB]).unwrap();
            assert!(server.orb.kept_memory() <= KEPT, "{what}");
            server.forget();
            flooding.keep(&vec![7; size]).unwrap();
            server.forget();
        }
    }
}

/// The octets of the unread replies exceed the maximum of kept memory, but octets in a reply do not
/// count.
#[test]
fn kept_octets_in_unread_replies_leave_the_memory_to_other_clients() {
    const CLIENTS: usize = 4;
    // More octets than the sockets of a connection can buffer.
    const SIZE: usize = 12 * MIB;
    for dispatch in EVERY_DISPATCH {
        let server =
            serve_with(Orb::builder().pool(PoolConfig::default().dispatch(dispatch)).max_kept_memory(2 * KEPT));
        let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        let key = server.object.ior().known_profiles().next().unwrap().object_key.to_vec();
        let argument = vec![7; SIZE];
        let unread: Vec<TcpStream> = (1..=CLIENTS)
            .map(|number| {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let message = request(&key, 1, "echo", |e| e.write_octet_sequence_copied(&argument).unwrap());
                stream.write_all(&message).unwrap();
                let end = clock::now() + Duration::from_secs(60);
                while server.hoard.echoes.load(Ordering::SeqCst) < number || server.orb.kept_memory() > 0 {
                    assert!(!end.is_past(), "{dispatch:?}: {} bytes count", server.orb.kept_memory());
                    std::thread::yield_now();
                }
                stream
            })
            .collect();
        assert!(server.hoard.refused.lock().is_empty(), "{dispatch:?}");
        let (_orb, good) = server.client(Orb::builder());
        good.keep(&vec![1; SIZE]).unwrap();
        drop(unread);
        server.forget();
    }
}

#[test]
fn kept_octets_outlive_their_connection_and_their_server() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let (client, store) = server.client(Orb::builder());
    store.keep(&numbered(MIB, 5)).unwrap();
    drop((store, client));
    let kept = server.hoard.kept.lock().clone();
    drop(server);
    assert!(*kept[0] == numbered(MIB, 5)[..]);
}
