//! Octets that a side lends over shared memory: the peer reads the sender's memory.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane::{
    ConnectionPoolExhaustedAction, Dispatch, LendableNumbers, LendableOctets, Octets, Orb, OrbBuilder, PoolConfig,
    SystemException, SystemExceptionKind as Kind, Transports, minor,
};
use corelane_net::{Endpoint, SharedMemoryTransport, TcpTransport, Transport, WaitLimit};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::sealed::SealedFile;
use corelane_tests::EVERY_DISPATCH;
use corelane_tests::real_time::wait_until;
use corelane_wire::Version;
use corelane_wire::giop::{Header, MessageKind};

corelane::include_idl!("large");
use large::{Store, StoreRef};

const MIB: usize = 1 << 20;

fn lendable(length: usize, number: usize) -> Octets {
    let mut octets = LendableOctets::new(length).unwrap();
    octets.iter_mut().zip(0usize..).for_each(|(octet, index)| *octet = (index / 251 + index + number) as u8);
    octets.seal().unwrap()
}

fn is_lent(octets: &[u8]) -> bool {
    SealedFile::containing(octets).is_some()
}

struct Lender {
    /// The address of each argument, and true if it is the start of a page.
    places: Mutex<Vec<(usize, bool)>>,
    kept: Mutex<Vec<Octets>>,
    keeps: bool,
    given: Octets,
}

impl Lender {
    fn new(keeps: bool) -> Arc<Self> {
        Arc::new(Lender {
            places: Mutex::new("addresses of a test", LockScope::Orb, Vec::new()),
            kept: Mutex::new("kept octets of a test", LockScope::Orb, Vec::new()),
            keeps,
            given: lendable(MIB, 3),
        })
    }

    fn note(&self, octets: &[u8]) {
        self.places.lock().push((octets.as_ptr().addr(), is_lent(octets)));
    }

    fn last_place(&self) -> (usize, bool) {
        self.places.lock().pop().expect("a call")
    }
}

struct Servant(Arc<Lender>);

impl Store for Servant {
    fn keep(&self, v: &[u8]) -> Result<u32, SystemException> {
        self.0.note(v);
        if self.0.keeps {
            let kept = corelane::keep_octets(v)?;
            self.0.kept.lock().push(kept);
        }
        Ok(v.iter().fold(0, |sum, octet| sum.wrapping_mul(31).wrapping_add(u32::from(*octet))))
    }

    fn add(&self, v: &[i32]) -> Result<u32, SystemException> {
        let at = v.as_ptr().addr();
        // A copy stands behind the beginning of its message, so it does not begin at the start of a
        // page.
        self.0.places.lock().push((at, at.is_multiple_of(4096)));
        Ok(v.iter().fold(0, |sum, number| sum.wrapping_add(number.cast_unsigned())))
    }

    fn give(&self) -> Result<Octets, SystemException> {
        Ok(self.0.given.clone())
    }

    fn echo(&self, v: &[u8]) -> Result<Octets, SystemException> {
        self.0.note(v);
        corelane::keep_octets(v)
    }
}

fn sum(octets: &[u8]) -> u32 {
    octets.iter().fold(0, |sum, octet| sum.wrapping_mul(31).wrapping_add(u32::from(*octet)))
}

struct Scene {
    server: Orb,
    client: Orb,
    store: StoreRef,
    lender: Arc<Lender>,
    path: PathBuf,
}

fn scene(
    server: OrbBuilder,
    client: OrbBuilder,
    transports: [SharedMemoryTransport; 2],
    is_shared: bool,
    keeps: bool,
) -> Scene {
    static SCENES: AtomicUsize = AtomicUsize::new(0);
    let number = SCENES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("corelane-lent-{}-{number}", std::process::id()));
    let address = if is_shared { format!("shm:{}", path.display()) } else { "tcp:127.0.0.1:0".to_owned() };
    let [servers, clients] = transports.map(|memory| -> Transports {
        Transports::new(vec![Arc::new(memory) as Arc<dyn Transport>, Arc::new(TcpTransport::new())])
    });
    let server = server.transports(servers).listen(address).build().unwrap();
    let lender = Lender::new(keeps);
    let object = server.root_poa().activate(&Store::servant(Servant(Arc::clone(&lender)))).unwrap();
    server.root_poa().manager().activate().unwrap();
    let client = client.transports(clients).build().unwrap();
    let store = StoreRef::from_object(client.string_to_object(&object.to_string()).unwrap().unwrap());
    Scene { server, client, store, lender, path }
}

impl Scene {
    fn with_dispatch(dispatch: Dispatch) -> Self {
        let server = Orb::builder().pool(PoolConfig::default().dispatch(dispatch));
        scene(server, Orb::builder(), Default::default(), true, false)
    }

    /// Calls until both sides of the connection have opened the channel for lent memory. Until then
    /// the octets are copied.
    fn wait_for_lending(&self, octets: &Octets) {
        wait_until(|| {
            assert_eq!(self.store.keep(octets).unwrap(), sum(octets));
            let place = self.lender.last_place();
            self.lender.kept.lock().clear();
            place.1
        });
    }
}

fn nothing_is_copied(dispatch: Dispatch) {
    let scene = Scene::with_dispatch(dispatch);
    let octets = lendable(MIB + 1, 1);
    scene.wait_for_lending(&octets);
    let mut places = BTreeSet::new();
    for length in [octets.len(), 16 * 1024].into_iter().cycle().take(50) {
        assert_eq!(scene.store.keep(&octets[..length]).unwrap(), sum(&octets[..length]));
        let (place, is_lent) = scene.lender.last_place();
        assert!(is_lent, "{dispatch:?}");
        places.insert(place);
    }
    // Each of the pool's threads may still have the message of an earlier call, so the memory may
    // be mapped several times.
    assert!(places.len() <= 8, "{dispatch:?}: the memory was mapped {} times", places.len());
    // The ORB copies a part that does not begin at the start of a page, and a sequence that is too
    // short.
    for part in [1..octets.len(), 0..16 * 1024 - 1] {
        assert_eq!(scene.store.keep(&octets[part.clone()]).unwrap(), sum(&octets[part]));
        assert!(!scene.lender.last_place().1);
    }
    let result = scene.store.give().unwrap();
    assert!(is_lent(&result) && result == scene.lender.given, "{dispatch:?}");
    let echo = scene.store.echo(&octets).unwrap();
    assert!(is_lent(&echo) && echo == octets && scene.lender.last_place().1);
    // A servant can return octets that it received without lending, and a client can send a
    // received result as an argument.
    assert_eq!(scene.store.echo(&octets[1..]).unwrap(), octets[1..]);
    assert_eq!(scene.store.keep(&echo).unwrap(), sum(&octets));
    assert_eq!(scene.store.keep(&result).unwrap(), sum(&result));
    drop((scene, octets));
    assert!(result.iter().zip(0usize..).all(|(octet, index)| *octet == (index / 251 + index + 3) as u8));
}

#[test]
fn lent_octets_are_not_copied() {
    EVERY_DISPATCH.into_iter().for_each(nothing_is_copied);
}

#[test]
fn sequences_of_numbers_are_lent() {
    let scene = Scene::with_dispatch(Dispatch::Reactive);
    scene.wait_for_lending(&lendable(MIB, 1));
    let mut numbers = LendableNumbers::<i32>::new(100_000).unwrap();
    numbers.iter_mut().zip(0..).for_each(|(number, index)| *number = index);
    let numbers = numbers.seal().unwrap();
    let sum = |numbers: &[i32]| numbers.iter().fold(0u32, |sum, number| sum.wrapping_add(number.cast_unsigned()));
    for (part, is_lent) in [(&numbers[..], true), (&numbers[..5000], true), (&numbers[1..], false)] {
        assert_eq!(scene.store.add(part).unwrap(), sum(part));
        assert_eq!(scene.lender.last_place().1, is_lent);
    }
    let copy = numbers.to_vec();
    assert_eq!(scene.store.add(&copy).unwrap(), sum(&numbers));
    assert!(!scene.lender.last_place().1);
}

/// The client has nothing to lend. It opens the channel only because the server can lend its
/// results.
#[test]
fn results_alone_are_lent_too() {
    let scene = Scene::with_dispatch(Dispatch::Reactive);
    wait_until(|| {
        let result = scene.store.give().unwrap();
        assert!(result == scene.lender.given);
        is_lent(&result)
    });
}

#[test]
fn more_files_than_the_sides_keep_are_lent_in_turn() {
    let small = || [(); 2].map(|()| SharedMemoryTransport::default().max_lent_memory(4 * MIB));
    let scene = scene(Orb::builder(), Orb::builder(), small(), true, false);
    let all: Vec<Octets> = (0..20).map(|number| lendable(if number % 5 == 0 { MIB } else { 50_000 }, number)).collect();
    scene.wait_for_lending(&all[0]);
    for octets in all.iter().chain(&all).chain(all.iter().rev()) {
        assert_eq!(scene.store.keep(octets).unwrap(), sum(octets));
        assert!(scene.lender.last_place().1);
        assert!(scene.store.echo(octets).unwrap() == *octets);
    }
    let larger = lendable(4 * MIB + 1, 1);
    assert_eq!(scene.store.keep(&larger).unwrap(), sum(&larger));
    assert!(!scene.lender.last_place().1);
}

#[test]
fn calls_on_a_multiplexed_connection_lend() {
    let client = Orb::builder()
        .max_connections_per_server(1)
        .on_connection_pool_exhausted(ConnectionPoolExhaustedAction::Multiplex);
    let scene = scene(Orb::builder(), client, Default::default(), true, false);
    let all: Vec<Octets> = (0..4).map(|number| lendable(100_000, number)).collect();
    std::thread::scope(|scope| {
        for own in &all {
            let scene = &scene;
            scope.spawn(move || {
                for octets in (0..50).flat_map(|_| [own, &scene.lender.given]) {
                    assert!(scene.store.echo(octets).unwrap() == *octets);
                    assert!(scene.store.give().unwrap() == scene.lender.given);
                }
            });
        }
    });
    let places = scene.lender.places.lock();
    assert!(places.iter().any(|(_, is_lent)| *is_lent));
}

#[test]
fn peers_that_do_not_take_lent_memory_get_copies() {
    let none = || SharedMemoryTransport::default().max_lent_memory(0);
    let some = SharedMemoryTransport::default;
    for (transports, is_shared) in [([none(), some()], true), ([some(), none()], true), ([some(), some()], false)] {
        let scene = scene(Orb::builder(), Orb::builder(), transports, is_shared, false);
        let octets = lendable(100_000, 1);
        for _ in 0..20 {
            assert_eq!(scene.store.keep(&octets).unwrap(), sum(&octets));
            let (result, echo) = (scene.store.give().unwrap(), scene.store.echo(&octets).unwrap());
            assert!(!is_lent(&result) && result == scene.lender.given && echo == octets);
        }
        assert!(scene.lender.places.lock().iter().all(|(_, is_lent)| !is_lent));
    }
}

#[test]
fn servants_keep_lent_octets_within_their_budget() {
    let server = Orb::builder().max_kept_memory(5 * MIB);
    let scene = scene(server, Orb::builder(), Default::default(), true, true);
    let octets = lendable(MIB, 1);
    scene.wait_for_lending(&octets);
    wait_until(|| scene.server.kept_memory() == 0);
    for kept in 1..=2 {
        assert_eq!(scene.store.keep(&octets).unwrap(), sum(&octets));
        assert!(scene.lender.last_place().1);
        assert!(scene.server.kept_memory() >= kept * MIB);
    }
    for _ in 0..3 {
        let refused = scene.store.keep(&octets).unwrap_err();
        assert_eq!((refused.kind(), refused.minor()), (Kind::ImpLimit, minor::KEPT_OCTETS));
    }
    let kept = std::mem::take(&mut *scene.lender.kept.lock());
    assert!(kept.len() == 2 && kept[0].as_ptr() != kept[1].as_ptr());
    drop(scene.client);
    assert!(kept.iter().all(|kept| *kept == octets));
    drop(kept);
    wait_until(|| scene.server.kept_memory() == 0);
}

/// Returns a request in the short form of messages that end in lent octets
/// (`corelane_wire::giop::lent`). It refers to memory that was not lent.
fn forged(number: u64, length: u64) -> Vec<u8> {
    let body = [[0; 24].as_slice(), &number.to_le_bytes(), &length.to_le_bytes()].concat();
    let header = Header {
        version: Version::GIOP_1_2,
        endian: corelane_wire::Endian::Little,
        more_fragments: false,
        kind: MessageKind::Request,
        size: body.len() as u32,
    };
    let mut message = [header.to_bytes().as_slice(), &body].concat();
    message[6] |= 0x80;
    message
}

#[test]
fn forged_references_end_their_connection_only() {
    for dispatch in EVERY_DISPATCH {
        let scene = Scene::with_dispatch(dispatch);
        let octets = lendable(100_000, 1);
        scene.wait_for_lending(&octets);
        for message in [forged(1, 100_000), forged(0, 0), forged(u64::MAX, u64::MAX), forged(1, 64 << 20), {
            let mut short = forged(1, 1);
            (short[8], short[9]) = (8, 0);
            short.truncate(20);
            short
        }] {
            let attacker =
                SharedMemoryTransport::default().connect(&Endpoint::shared_memory(scene.path.clone()), None).unwrap();
            assert_eq!(attacker.send(&message, WaitLimit::Block).unwrap(), message.len());
            let mut received = Vec::new();
            let mut buffer = [0; 4096];
            let end = loop {
                match attacker.recv(&mut buffer, WaitLimit::Block) {
                    Ok(0) => break Ok(()),
                    Ok(count) => received.extend_from_slice(&buffer[..count]),
                    Err(error) => break Err(error),
                }
            };
            assert!(end.is_ok() || end.is_err_and(|error| error.kind() != io::ErrorKind::TimedOut), "{dispatch:?}");
            let error = received.last_chunk::<12>().map(|header| Header::parse(header).unwrap().kind);
            assert_eq!(error, Some(MessageKind::MessageError), "{dispatch:?}");
        }
        assert_eq!(scene.store.keep(&octets).unwrap(), sum(&octets));
        assert!(scene.lender.last_place().1);
    }
}
