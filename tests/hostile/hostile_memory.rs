//! The memory that attacks of peers make an ORB hold, counted by the allocator.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use corelane::mapping::{Decoder, Encoder, read_reference, read_value, write_reference, write_value};
use corelane::{
    Any, Canceller, Cdr, CdrError, Completion, ConnectionLimits, Context, Dispatch, Event, ObjectRef, Orb, PoolConfig,
    Servant, ServerCall, Skeleton, SystemException, SystemExceptionKind as Kind, TypeCode, Typed, Value, ValueRef,
};
use corelane_sys::alloc::CountingAllocator;
use corelane_sys::lock::{LockScope, Mutex, MutexGuard};
use corelane_sys::memory;
use corelane_tests::raw::{connect, request};
use corelane_tests::{ProbeRef, Server, client, serve_with};
use corelane_wire::CodeSets;

corelane::include_idl!("values");

use values::Node;

/// Locked by each test, because the allocator counts the bytes of the whole process.
static ALONE: Mutex<()> = Mutex::new("one test at a time", LockScope::Orb, ());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

const HELD: usize = 24 << 20;
const ATTACKERS: usize = 10;
/// Bytes that may be allocated beyond a maximum, for buffers, small requests and the good clients.
const BESIDE: usize = ATTACKERS * (256 << 10) + (2 << 20);

struct Attack {
    name: &'static str,
    write: fn(&mut Encoder<'_>),
    read: fn(&mut Decoder<'_>, meanwhile: &dyn Fn()) -> Result<(), CdrError>,
}

fn keep<T: Cdr>(d: &mut Decoder<'_>, meanwhile: &dyn Fn()) -> Result<(), CdrError> {
    let _kept = T::decode(d)?;
    meanwhile();
    Ok(())
}

fn sequence(e: &mut Encoder<'_>, count: usize, element: impl Fn(&mut Encoder<'_>)) {
    e.write_len(count).unwrap();
    (0..count).for_each(|_| element(e));
}

fn any<T: Typed>(value: &T) -> Any {
    Any::new(value).unwrap()
}

#[derive(Debug)]
struct Empty(#[expect(dead_code, reason = "takes memory")] [u8; 64]);

impl Cdr for Empty {
    const MIN_SIZE: usize = 0;

    fn encode(&self, _: &mut Encoder<'_>) -> Result<(), CdrError> {
        Ok(())
    }

    fn decode(_: &mut Decoder<'_>) -> Result<Self, CdrError> {
        Ok(Empty([1; 64]))
    }
}

#[derive(Debug)]
struct Wide(#[expect(dead_code, reason = "takes memory")] [u64; 32]);

impl Cdr for Wide {
    const MIN_SIZE: usize = 1;

    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        e.write_u8(0);
        Ok(())
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
        d.read_u8().map(|_| Wide([1; 32]))
    }
}

fn wide_texts(d: &mut Decoder<'_>, meanwhile: &dyn Fn()) -> Result<(), CdrError> {
    let mut d = d.clone().with_code_sets(CodeSets::UTF8_UTF16);
    let len = d.read_len(4)?;
    let _kept = (0..len).map(|_| d.read_wstring()).collect::<Result<Vec<_>, _>>()?;
    meanwhile();
    Ok(())
}

fn arena(d: &mut Decoder<'_>, meanwhile: &dyn Fn()) -> Result<(), CdrError> {
    let len = d.read_len(4)?;
    for _ in 0..len {
        d.read_str()?;
    }
    meanwhile();
    Ok(())
}

fn values(d: &mut Decoder<'_>, meanwhile: &dyn Fn()) -> Result<(), CdrError> {
    let len = d.read_len(4)?;
    d.charge_elements::<Option<ValueRef<Node>>>(len)?;
    let _kept = (0..len).map(|_| read_value::<Node>(d)).collect::<Result<Vec<_>, _>>()?;
    meanwhile();
    Ok(())
}

fn references(d: &mut Decoder<'_>, meanwhile: &dyn Fn()) -> Result<(), CdrError> {
    let len = d.read_len(8)?;
    d.charge_elements::<Option<ObjectRef>>(len)?;
    let _kept = (0..len).map(|_| read_reference::<ObjectRef>(d)).collect::<Result<Vec<_>, _>>()?;
    meanwhile();
    Ok(())
}

fn tree(d: &mut Decoder<'_>, meanwhile: &dyn Fn()) -> Result<(), CdrError> {
    let _kept = Value::decode(&Vec::<bool>::type_code(), d)?;
    meanwhile();
    Ok(())
}

fn properties(d: &mut Decoder<'_>, meanwhile: &dyn Fn()) -> Result<(), CdrError> {
    let _kept = Context::begin(d)?;
    meanwhile();
    Ok(())
}

const ATTACKS: &[Attack] = &[
    Attack { name: "any of null", write: |e| sequence(e, 60_000, |e| e.write_u32(0)), read: keep::<Vec<Any>> },
    Attack {
        name: "any in any",
        write: |e| {
            let nested = any(&any(&any(&any(&7i32))));
            sequence(e, 30_000, |e| nested.encode(e).unwrap());
        },
        read: keep::<Vec<Any>>,
    },
    Attack {
        name: "any with a TypeCode of its own",
        write: |e| {
            let text = Any::with_type(&TypeCode::string(9), &"a".to_owned()).unwrap();
            sequence(e, 10_000, |e| text.encode(e).unwrap());
        },
        read: keep::<Vec<Any>>,
    },
    Attack {
        name: "TypeCodes",
        write: |e| sequence(e, 12_000, |e| TypeCode::string(9).encode(e).unwrap()),
        read: keep::<Vec<TypeCode>>,
    },
    Attack {
        name: "a TypeCode of many parts",
        write: |e| {
            let members: Vec<_> = (0..12_000).map(|number| (format!("m{number}"), TypeCode::string(9))).collect();
            let members = members.iter().map(|(name, part)| (name.as_str(), part.clone()));
            TypeCode::structure("IDL:S:1.0", "S", members).unwrap().encode(e).unwrap();
        },
        read: keep::<TypeCode>,
    },
    Attack { name: "structures without octets", write: |e| e.write_u32(80_000), read: keep::<Vec<Empty>> },
    Attack { name: "unions", write: |e| sequence(e, 24_000, |e| e.write_u8(0)), read: keep::<Vec<Wide>> },
    Attack {
        name: "short text",
        write: |e| sequence(e, 90_000, |e| e.write_str("a").unwrap()),
        read: keep::<Vec<String>>,
    },
    Attack {
        name: "sequences of sequences",
        write: |e| sequence(e, 90_000, |e| sequence(e, 1, |e| e.write_u8(1))),
        read: keep::<Vec<Vec<u8>>>,
    },
    Attack {
        name: "wide text",
        write: |e| {
            e.set_code_sets(CodeSets::UTF8_UTF16);
            let text = "\u{20ac}".repeat(2000);
            sequence(e, 900, |e| e.write_wstr(&text).unwrap());
        },
        read: wide_texts,
    },
    Attack {
        name: "text that is converted in the arena",
        write: |e| {
            let text = "é".repeat(4000);
            sequence(e, 700, |e| e.write_latin1_str(&text).unwrap());
        },
        read: arena,
    },
    Attack { name: "values", write: write_values, read: values },
    Attack {
        name: "references",
        write: |e| {
            let orb = Orb::new().unwrap();
            let text = "corbaloc::1.2@127.0.0.1:9,:1.2@127.0.0.1:8/Key";
            let object = orb.string_to_object(text).unwrap();
            sequence(e, 6_000, |e| write_reference(e, object.as_ref()).unwrap());
        },
        read: references,
    },
    Attack { name: "a tree of parts", write: |e| sequence(e, 100_000, |e| e.write_u8(1)), read: tree },
    Attack {
        name: "properties of a context",
        write: |e| {
            e.write_len(60_000).unwrap();
            (0..60_000).for_each(|number| e.write_str(&format!("{number}")).unwrap());
        },
        read: properties,
    },
];

fn write_values(e: &mut Encoder<'_>) {
    sequence(e, 15_000, |e| {
        let node = Node { id: 1, left: None, right: None, secret: String::new() };
        write_value(e, Some(&ValueRef::new(node))).unwrap();
    });
}

struct Holding {
    released: Arc<AtomicBool>,
    holding: Arc<AtomicUsize>,
}

impl Skeleton for Holding {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:Holding:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let number = std::str::from_utf8(operation).ok().and_then(|number| number.parse::<usize>().ok());
        let attack = number.and_then(|number| ATTACKS.get(number)).ok_or_else(SystemException::bad_operation)?;
        let meanwhile = || {
            self.holding.fetch_add(1, Ordering::SeqCst);
            until("the test releases the values", || self.released.load(Ordering::SeqCst));
        };
        (attack.read)(call.arguments(), &meanwhile)?;
        Ok(())
    }
}

struct Release<'a>(&'a AtomicBool);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition did not become true: {what}");
}

fn answer(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (_, size) = corelane_tests::raw::read_header(stream);
    let mut body = vec![0; size];
    stream.read_exact(&mut body).unwrap();
    (body[4] == 2).then(|| String::from_utf8_lossy(&body[16..]).into_owned())
}

fn good_client(ior: &str, stop: &AtomicBool) -> u64 {
    let (_orb, probe): (Orb, ProbeRef) = client(ior);
    let mut calls = 0;
    while !stop.load(Ordering::SeqCst) {
        assert_eq!(probe.cube_long(3).unwrap(), 27);
        assert_eq!(probe.echo("grün").unwrap(), "grün");
        assert_eq!(probe.sum(&[1; 1000]).unwrap(), 1000);
        calls += 3;
        std::thread::sleep(Duration::from_millis(1));
    }
    calls
}

#[test]
fn memory_of_all_requests_together_is_bounded() {
    let _alone = alone();
    for dispatch in [
        Dispatch::ThreadPerConnection { max_threads: 64 },
        Dispatch::LeaderFollowers { threads: ATTACKERS + 3 },
        Dispatch::HalfSyncHalfAsync { threads: ATTACKERS + 3, max_queued: 256 },
    ] {
        let told: Arc<Mutex<Vec<String>>> = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
        let list = Arc::clone(&told);
        let on_event = move |event: &Event| {
            if let Event::RequestRefused { .. } = event {
                list.lock().push(event.to_string());
            }
        };
        let pool = PoolConfig::default()
            .dispatch(dispatch)
            .connection_limits(ConnectionLimits::default().max_buffered_bytes(HELD));
        let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").on_event(on_event));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = Release(&stop);
            let good = [(); 2].map(|()| scope.spawn(|| good_client(&server.ior, &stop)));
            // Decoding does not depend on the dispatch architecture, so only the first architecture
            // gets every attack.
            let step = if matches!(dispatch, Dispatch::ThreadPerConnection { .. }) { 1 } else { 5 };
            for (number, attack) in ATTACKS.iter().enumerate().step_by(step) {
                attack_with(&server, number, attack, &told);
            }
            stop.store(true, Ordering::SeqCst);
            for good in good {
                assert!(good.join().unwrap() > 0);
            }
        });
        assert_eq!(server.orb.event_counts().memory_budget_exceeded, 0, "a connection was closed");
    }
}

fn attack_with(server: &Server, number: usize, attack: &Attack, told: &Mutex<Vec<String>>) {
    let name = attack.name;
    let (released, holding) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let servant = Servant::new(Holding { released: Arc::clone(&released), holding: Arc::clone(&holding) });
    let poa = server.orb.root_poa();
    let id = poa.activate_object(&servant).unwrap();
    let object = poa.id_to_reference(&id).unwrap();
    let own = object.ior().known_profiles().next().unwrap().object_key.to_vec();
    let message = request(&own, 1, &number.to_string(), attack.write);
    let mut streams: Vec<TcpStream> = (0..ATTACKERS).map(|_| connect(server)).collect();
    let release = Release(&released);
    let before = CountingAllocator::live_bytes();
    let _ = CountingAllocator::take_peak_bytes();
    told.lock().clear();
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&message).unwrap();
        // Waits for each request before the next, because the server might refuse all of several
        // requests that arrive at the same moment.
        until(name, || holding.load(Ordering::SeqCst) + told.lock().len() == number + 1);
    }
    let peak = CountingAllocator::take_peak_bytes().saturating_sub(before);
    let held = holding.load(Ordering::SeqCst);
    assert!(peak <= HELD + HELD / 2 + HELD / 4 + BESIDE, "{name}: {} octets became {peak}, {held} held", message.len());
    assert!(held >= 1, "{name}: the server refused all requests");
    assert!(held < ATTACKERS, "{name}: the server refused no request");
    for line in told.lock().iter() {
        assert!(line.contains("IMP_LIMIT") && line.contains(&format!("at most {HELD}")), "{name}: {line}");
    }
    drop(release);
    let refused = streams.iter_mut().filter_map(answer).inspect(|kind| assert!(kind.contains("IMP_LIMIT"), "{kind}"));
    assert_eq!(refused.count(), ATTACKERS - held, "{name}");
    for stream in &mut streams {
        until(name, || {
            stream.write_all(&message).unwrap();
            answer(stream).is_none()
        });
    }
}

#[test]
fn one_connection_leaves_half_of_the_memory_to_others() {
    let _alone = alone();
    let pool = PoolConfig::default()
        .dispatch(Dispatch::LeaderFollowers { threads: ATTACKERS + 3 })
        .connection_limits(ConnectionLimits::default().max_buffered_bytes(HELD));
    let server = serve_with(Orb::builder().pool(pool).listen("tcp:127.0.0.1:0"));
    let (released, holding) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let servant = Servant::new(Holding { released: Arc::clone(&released), holding: Arc::clone(&holding) });
    let poa = server.orb.root_poa();
    let object = poa.id_to_reference(&poa.activate_object(&servant).unwrap()).unwrap();
    let own = object.ior().known_profiles().next().unwrap().object_key.to_vec();
    let message = |id| request(&own, id, "0", ATTACKS[0].write);
    let refused = || usize::try_from(server.orb.event_counts().requests_refused).unwrap();
    let release = Release(&released);
    let (mut greedy, mut good) = (connect(&server), connect(&server));
    for id in 0..ATTACKERS {
        greedy.write_all(&message(u32::try_from(id).unwrap())).unwrap();
    }
    until("the greedy requests have begun", || holding.load(Ordering::SeqCst) + refused() == ATTACKERS);
    let (held, refused_before) = (holding.load(Ordering::SeqCst), refused());
    assert!(held > 1 && refused_before > 0, "{held} held, {refused_before} refused");
    good.write_all(&message(1)).unwrap();
    until("the other request has begun", || holding.load(Ordering::SeqCst) + refused() == ATTACKERS + 1);
    assert_eq!(refused(), refused_before);
    drop(release);
    assert_eq!(answer(&mut good), None);
}

struct Chain {
    next: Arc<Mutex<Option<ObjectRef>>>,
    decodes: bool,
    decoded: Arc<AtomicUsize>,
}

impl Skeleton for Chain {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:Chain:1.0"]
    }

    fn dispatch(&self, _: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let _kept = if self.decodes { Some(Vec::<Any>::decode(call.arguments())?) } else { None };
        self.decoded.fetch_add(usize::from(self.decodes), Ordering::SeqCst);
        let next = self.next.lock().clone();
        call_chain(&next.ok_or_else(SystemException::bad_operation)?)
    }
}

fn call_chain(object: &ObjectRef) -> Result<(), SystemException> {
    let arguments = |e: &mut Encoder<'_>| {
        (ATTACKS[0].write)(e);
        Ok(())
    };
    object.call(&corelane::Operation::new("chain"), |_| Ok(()), &arguments)
}

/// The nested requests are collocated, or run on a thread that waits for the reply to its own call.
#[test]
fn memory_of_nested_requests_is_bounded() {
    let _alone = alone();
    for (within, setting) in [(true, "max_reply_memory"), (false, "max_buffered_bytes")] {
        let pool = PoolConfig::default()
            .dispatch(Dispatch::Reactive)
            .connection_limits(ConnectionLimits::default().max_buffered_bytes(HELD));
        let server = serve_with(Orb::builder().pool(pool).max_reply_memory(HELD).listen("tcp:127.0.0.1:0"));
        let client = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        client.root_poa().manager().activate().unwrap();
        let decoded = Arc::new(AtomicUsize::new(0));
        let next = [(); 2].map(|()| Arc::new(Mutex::new("next", LockScope::Orb, None)));
        let [keeper, relay] = [0, 1].map(|number| {
            let (next, decoded) = (Arc::clone(&next[number]), Arc::clone(&decoded));
            Servant::new(Chain { next, decodes: number == 0, decoded })
        });
        let keeper = server.orb.root_poa().activate(&keeper).unwrap();
        let relay = client.root_poa().activate(&relay).unwrap();
        let seen = |orb: &Orb, object: &ObjectRef| orb.string_to_object(&object.to_string()).unwrap().unwrap();
        *next[0].lock() = Some(if within { keeper.clone() } else { seen(&server.orb, &relay) });
        *next[1].lock() = Some(seen(&client, &keeper));
        let before = CountingAllocator::live_bytes();
        let _ = CountingAllocator::take_peak_bytes();
        let refused = call_chain(&seen(&client, &keeper)).unwrap_err();
        let peak = CountingAllocator::take_peak_bytes().saturating_sub(before);
        assert_eq!(refused.kind(), Kind::ImpLimit, "{setting}: {refused}");
        let levels = decoded.load(Ordering::SeqCst);
        assert!(levels > 2, "{setting}: {levels}");
        assert!(peak <= 2 * HELD + BESIDE, "{setting}: {levels} requests held {peak}");
        for object in &next {
            *object.lock() = None;
        }
    }
}

const REPLIES: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(120);
const BEGUN: usize = 3 << 20;

/// Starts a server whose replies never end. Each reply has the first [`BEGUN`] bytes of an
/// announced 63 MiB, or fragments with about [`BEGUN`] bytes in total. Returns the server's address
/// and the number of begun replies.
fn endless(fragments: bool) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    let server = corelane_tests::scripted::serve(0, move |stream, id| {
        let mut body = corelane_tests::scripted::reply_start(id, 0);
        if fragments {
            body.resize(64 << 10, 0);
            stream.write_all(&corelane_tests::scripted::message(1, true, &body))?;
            let rest = [id.to_le_bytes().to_vec(), vec![0; 64 << 10]].concat();
            for _ in 1..BEGUN >> 16 {
                stream.write_all(&corelane_tests::scripted::message(7, true, &rest))?;
            }
        } else {
            let mut octets = corelane_tests::scripted::message(1, false, &body);
            octets[8..12].copy_from_slice(&(63_u32 << 20).to_le_bytes());
            octets.resize(BEGUN, 0);
            stream.write_all(&octets)?;
        }
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    (server.address, begun)
}

fn hostile_reference(orb: &Orb, server: std::net::SocketAddr) -> ProbeRef {
    ProbeRef::from_object(orb.string_to_object(&format!("corbaloc::1.2@{server}/Key")).unwrap().unwrap())
}

#[test]
fn cancelled_call_frees_its_partial_reply() {
    let _alone = alone();
    for fragments in [false, true] {
        let (server, begun) = endless(fragments);
        let good = serve_with(Orb::builder().listen("tcp:127.0.0.1:0"));
        let orb = Orb::builder().max_reply_memory(REPLIES).build().unwrap();
        let probe = ProbeRef::from_object(orb.string_to_object(&good.ior).unwrap().unwrap());
        let hostile = hostile_reference(&orb, server).with_timeout(PATIENCE);
        for number in 0..8 {
            let canceller = Canceller::new().unwrap();
            let call = hostile.with_canceller(&canceller);
            let exception = std::thread::scope(|scope| {
                let call = scope.spawn(|| call.sevens(1).unwrap_err());
                until("a reply has begun", || begun.load(Ordering::SeqCst) > number);
                canceller.cancel();
                call.join().unwrap()
            });
            assert_eq!(exception.completed(), Completion::Maybe, "{fragments}, {number}: {exception}");
            assert_eq!(exception.kind(), Kind::Transient, "{fragments}, {number}: {exception}");
            assert_eq!(probe.echo("well").unwrap(), "well");
        }
        // This reply needs nearly all of the maximum, so it succeeds only if the partial replies
        // are freed.
        assert_eq!(probe.sevens(7 << 20).unwrap().len(), 7 << 20, "{fragments}");
    }
}

#[test]
fn memory_of_partial_replies_of_all_connections_is_bounded() {
    let _alone = alone();
    for fragments in [false, true] {
        let (server, _) = endless(fragments);
        let good = serve_with(Orb::builder().listen("tcp:127.0.0.1:0"));
        let orb = Orb::builder().max_reply_memory(REPLIES).build().unwrap();
        let probe = ProbeRef::from_object(orb.string_to_object(&good.ior).unwrap().unwrap());
        let canceller = Canceller::new().unwrap();
        let hostile = hostile_reference(&orb, server).with_timeout(PATIENCE).with_canceller(&canceller);
        let refusals = AtomicUsize::new(0);
        let call = || {
            let failed = hostile.sevens(1).unwrap_err();
            refusals.fetch_add(usize::from(failed.kind() == Kind::ImpLimit), Ordering::SeqCst);
            failed
        };
        let failed: Vec<SystemException> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8).map(|_| scope.spawn(call)).collect();
            assert_eq!(probe.echo("well").unwrap(), "well");
            until("a reply is refused", || refusals.load(Ordering::SeqCst) > 0);
            canceller.cancel();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let refused: Vec<_> = failed.iter().filter(|failed| failed.kind() == Kind::ImpLimit).collect();
        assert!((1..=6).contains(&refused.len()), "{fragments}: {failed:?}");
        for refused in refused {
            assert_eq!(refused.completed(), Completion::Maybe);
            let text = refused.to_string();
            assert!(text.contains(&format!("at most {REPLIES}")) && text.contains("max_reply_memory"), "{text}");
        }
        assert_eq!(probe.sevens(7 << 20).unwrap().len(), 7 << 20, "{fragments}");
    }
}

#[test]
fn memory_of_uncollected_replies_is_bounded() {
    let _alone = alone();
    let good = serve_with(Orb::builder().listen("tcp:127.0.0.1:0"));
    let orb = Orb::builder().max_reply_memory(REPLIES).build().unwrap();
    let probe = ProbeRef::from_object(orb.string_to_object(&good.ior).unwrap().unwrap());
    let ask = || {
        probe.as_object().send_deferred("sevens", |e| {
            e.write_u32(3 << 20);
            Ok(())
        })
    };
    let mut calls: Vec<_> = (0..4).filter_map(|_| ask().ok()).collect();
    until("all are answered", || calls.iter_mut().all(|call| call.is_ready()));
    let refused = calls.iter_mut().filter_map(|call| call.reply().err()).collect::<Vec<_>>();
    assert!(refused.iter().any(|refused| refused.kind() == Kind::ImpLimit), "{refused:?}");
    drop(calls);
    assert_eq!(probe.sevens(7 << 20).unwrap().len(), 7 << 20);
}

#[test]
fn results_that_do_not_fit_are_refused() {
    let _alone = alone();
    let server = corelane_tests::scripted::serve(0, |stream, id| {
        let mut body = corelane_tests::scripted::reply_start(id, 0);
        let count = 200_000_u32;
        body.extend(count.to_le_bytes());
        body.resize(body.len() + 4 * count as usize, 0);
        stream.write_all(&corelane_tests::scripted::message(1, false, &body))
    });
    let orb = Orb::builder().max_reply_memory(REPLIES).build().unwrap();
    let object = hostile_reference(&orb, server.address);
    let mut reply = object.as_object().invoke(&corelane::Operation::new("list"), &|_| Ok(())).unwrap();
    let before = CountingAllocator::live_bytes();
    let _ = CountingAllocator::take_peak_bytes();
    let refused = reply.read(|d| Vec::<Any>::decode(d).map(|list| list.len())).unwrap_err();
    let peak = CountingAllocator::take_peak_bytes().saturating_sub(before);
    assert_eq!((refused.kind(), refused.completed()), (Kind::ImpLimit, Completion::Yes), "{refused}");
    assert!(refused.to_string().contains(&format!("at most {REPLIES}")), "{refused}");
    assert!(peak <= REPLIES + BESIDE, "{peak}");
}

#[test]
fn memory_of_large_messages_is_trimmed_when_an_orb_is_idle() {
    let _alone = alone();
    // With this idle time-out, the server runs its maintenance every 10 ms.
    let quick = Duration::from_millis(40);
    let server = serve_with(Orb::builder().idle_connection_timeout(quick).listen("tcp:127.0.0.1:0"));
    let (_orb, probe) = client(&server.ior);
    for _ in 0..2 {
        let before = memory::heap_trim_count();
        assert_eq!(probe.mirror(&vec![7; 4 << 20]).unwrap().len(), 4 << 20);
        until("memory is trimmed", || memory::heap_trim_count() > before);
    }
}

#[test]
fn reply_that_has_arrived_is_the_result_after_the_deadline() {
    let _alone = alone();
    let waits = Arc::new(AtomicBool::new(false));
    let server = corelane_tests::scripted::serve(0, |stream, id| {
        stream.write_all(
            &[corelane_tests::scripted::successful_reply(id), corelane_tests::scripted::successful_reply(id + 2)]
                .concat(),
        )
    });
    let orb = Orb::builder().max_connections_per_server(1).build().unwrap();
    let probe = hostile_reference(&orb, server.address);
    assert_eq!(probe.cube_long(3).unwrap(), 27);
    let timeout = Duration::from_millis(20);
    let late = probe.with_timeout(corelane::Timeout::Precise(timeout));
    let slowly = |e: &mut Encoder<'_>| {
        std::thread::sleep(2 * timeout);
        e.write_i32(3);
        waits.store(true, Ordering::SeqCst);
        Ok(())
    };
    let operation = corelane::Operation::new("cube_long");
    let result = late.as_object().call(&operation, |d| d.read_i32(), &slowly);
    assert!(waits.load(Ordering::SeqCst));
    assert_eq!(result.unwrap(), 27);
}
