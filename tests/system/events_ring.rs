//! A ring of three event channels, each in a network namespace, whose links are cut at random. Each
//! channel has a gateway to each of the two others. Every event must reach every consumer once.
//!
//! The test needs root. It runs for about as many seconds as `CORELANE_CUTS` says (12 by default),
//! because each site cuts its link that many times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use corelane::{Dispatch, Orb, PoolConfig, SystemException};
use corelane_services::events::rtec_event_channel_admin::{ConsumerQOS, Dependency, ProxyPushConsumerRef, SupplierQOS};
use corelane_services::events::rtec_event_comm::{Event, EventHeader, PushConsumer, PushConsumerRef};
use corelane_services::events::{EventChannel, Gateway, GatewayBuilder, QueueLimits, ReconnectPolicy};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::{process, thread};

const SITES: usize = 3;
/// Number of steps that all sites begin together.
const STEPS: usize = 7;
const NUMBERED: i32 = 16;
const PROBE: i32 = 17;
const PORT: u16 = 7801;

/// Runs `ip` of iproute2.
fn ip(words: &str) {
    let output = std::process::Command::new("ip").args(words.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the address of a site's end of a link. Link N joins the sites N and N + 1 (modulo 3).
/// Its end at a site is the interface `linkN`.
fn address(link: usize, site: usize) -> String {
    format!("10.98.{link}.{}", site + 1)
}

fn links_of(site: usize) -> [usize; 2] {
    [site, (site + SITES - 1) % SITES]
}

/// Returns the number of the link between two sites.
fn link_between(one: usize, other: usize) -> usize {
    if (one + 1) % SITES == other { one } else { other }
}

#[derive(Default)]
struct Got {
    numbers: Vec<i32>,
    probes: Vec<i32>,
}

struct Consumer(Arc<Mutex<Got>>);

impl PushConsumer for Consumer {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        let mut got = self.0.lock();
        for event in data {
            let list = if event.header.r#type == NUMBERED { &mut got.numbers } else { &mut got.probes };
            list.push(event.header.source);
        }
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

fn event(event_type: i32, source: i32) -> Event {
    let header = EventHeader { r#type: event_type, source, ttl: 4, ..EventHeader::default() };
    Event { header, ..Event::default() }
}

fn wait_until(what: &str, is_reached: impl Fn() -> bool) {
    let deadline = Monotonic::now() + Duration::from_secs(120);
    while !is_reached() {
        assert!(!deadline.is_past(), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn settings() -> GatewayBuilder {
    let reconnect = ReconnectPolicy { first_delay: Duration::from_millis(20), max_delay: Duration::from_millis(200) };
    let buffer = QueueLimits { max_delivery_sets: 1_000_000, max_bytes: 256 << 20 };
    let builder = Gateway::builder().reconnect(reconnect).buffer_limits(buffer);
    builder.check_interval(Duration::from_millis(100)).call_timeout(Duration::from_millis(300))
}

struct Site {
    number: usize,
    _orb: Orb,
    channel: EventChannel,
    supplier: ProxyPushConsumerRef,
    got: Arc<Mutex<Got>>,
}

impl Site {
    fn new(number: usize) -> Self {
        let pool = PoolConfig::default().dispatch(Dispatch::ThreadPerConnection { max_threads: 64 });
        let listen =
            |builder: corelane::OrbBuilder, link| builder.listen(format!("tcp:{}:{PORT}", address(link, number)));
        let builder = links_of(number).into_iter().fold(Orb::builder().pool(pool), listen);
        let orb = builder.build().expect("an ORB");
        orb.root_poa().manager().activate().expect("active");
        let others = (0..SITES).filter(|other| *other != number).map(|other| {
            let there = address(link_between(number, other), other);
            let url = format!("corbaloc::1.2@{there}:{PORT}/EventChannel.rtec");
            orb.string_to_object(&url).expect("a URL").expect("a reference")
        });
        let builder = others.fold(EventChannel::builder(), |builder, other| builder.gateway(&other, settings()));
        let channel = builder.serve(&orb).expect("a channel");
        let got = Arc::new(Mutex::new("got events", LockScope::Orb, Got::default()));
        let consumer = orb.root_poa().activate(&PushConsumer::servant(Consumer(Arc::clone(&got)))).expect("active");
        let proxy = channel.reference().for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
        let dependency = |event_type| Dependency { event: event(event_type, 0), rt_info: 0 };
        let qos = ConsumerQOS { dependencies: vec![dependency(NUMBERED), dependency(PROBE)], is_gateway: false };
        proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &qos).unwrap();
        let supplier = channel.reference().for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
        supplier.connect_push_supplier(None, &SupplierQOS::default()).unwrap();
        Site { number, _orb: orb, channel, supplier, got }
    }

    fn has_probes_of_all(&self) -> bool {
        let got = self.got.lock();
        (0..SITES as i32).all(|site| got.probes.contains(&(site + 1)))
    }
}

fn cuts() -> usize {
    std::env::var("CORELANE_CUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// The state that the sites and the test share: the end of each step, and the published events.
struct Course {
    /// Number of times that a thread has come to the end of a step.
    arrivals: AtomicUsize,
    are_probes_there: [AtomicBool; SITES],
    is_over: AtomicBool,
    published: [Mutex<Vec<i32>>; SITES],
}

impl Course {
    /// Waits until all sites and the test have come to the end of this step.
    fn end_step(&self, step: usize) {
        self.arrivals.fetch_add(1, Ordering::AcqRel);
        let all = (step + 1) * (SITES + 1);
        wait_until("another site has failed", || self.arrivals.load(Ordering::Acquire) >= all);
    }
}

fn run_site(number: usize, course: &Course, thread_ids: &mpsc::Sender<i32>) {
    process::enter_new_network_namespace().expect("a namespace");
    thread_ids.send(thread::current_tid().as_raw()).expect("the test waits");
    course.end_step(0);
    ip("link set lo up");
    for link in links_of(number) {
        ip(&format!("address add {}/24 dev link{link}", address(link, number)));
        ip(&format!("link set link{link} up"));
    }
    course.end_step(1);
    let site = Site::new(number);
    course.end_step(2);
    wait_until("the demand does not arrive", || {
        site.supplier.push(&[event(PROBE, number as i32 + 1)]).unwrap();
        course.are_probes_there[number].store(site.has_probes_of_all(), Ordering::Relaxed);
        course.are_probes_there.iter().all(|is_there| is_there.load(Ordering::Relaxed))
    });
    course.end_step(3);
    // The site's end of its first link is cut and mended at random, while all sites publish.
    let mut random = 7 + number as u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let publish = |next: &mut i32| {
        let source = *next * SITES as i32 + number as i32;
        site.supplier.push(&[event(NUMBERED, source)]).unwrap();
        course.published[number].lock().push(source);
        *next += 1;
    };
    let mut next = 1;
    for _ in 0..cuts() {
        ip(&format!("link set link{number} down"));
        for _ in 0..20 + below(60) {
            publish(&mut next);
            std::thread::sleep(Duration::from_millis(5));
        }
        ip(&format!("link set link{number} up"));
        for _ in 0..20 + below(100) {
            publish(&mut next);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    course.end_step(4);
    let mut expected: Vec<i32> = course.published.iter().flat_map(|list| list.lock().clone()).collect();
    expected.sort_unstable();
    wait_until("events are missing", || site.got.lock().numbers.len() >= expected.len());
    course.end_step(5);
    let mut got = site.got.lock().numbers.clone();
    got.sort_unstable();
    assert_eq!(got, expected, "site {}", site.number);
    for gateway in site.channel.gateways() {
        let counts = gateway.status().counts;
        assert!(counts.is_balanced() && counts.dropped_buffer_full + counts.dropped_by_destination == 0, "{counts:?}");
        println!("site {number}: {counts:?}");
    }
    // The sites stay until all sites have compared their events.
    course.end_step(6);
    course.is_over.store(true, Ordering::Relaxed);
    site.channel.gateways().iter().for_each(Gateway::stop);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "threads of a test, which are not measured")]
fn ring_in_three_namespaces_delivers_each_event_once_while_links_are_cut() {
    if let Some(missing) = process::missing_namespace_capability() {
        println!("not run: the process lacks {missing}");
        return;
    }
    let list = |_| Mutex::new("published events", LockScope::Orb, Vec::new());
    let course = Course {
        arrivals: AtomicUsize::new(0),
        are_probes_there: Default::default(),
        is_over: AtomicBool::new(false),
        published: std::array::from_fn(list),
    };
    std::thread::scope(|scope| {
        let ids: Vec<i32> = (0..SITES)
            .map(|number| {
                let (sender, receiver) = mpsc::channel();
                let course = &course;
                scope.spawn(move || run_site(number, course, &sender));
                receiver.recv().expect("the site has a namespace")
            })
            .collect();
        scope
            .spawn(move || {
                // The links are made in a new namespace, so that no link stays in the machine's
                // namespace.
                process::enter_new_network_namespace().expect("a namespace");
                for link in 0..SITES {
                    ip(&format!("link add link{link} type veth peer name peer{link}"));
                    ip(&format!("link set link{link} netns {}", ids[link]));
                    ip(&format!("link set peer{link} name link{link} netns {}", ids[(link + 1) % SITES]));
                }
            })
            .join()
            .expect("the links are made");
        (0..STEPS).for_each(|step| course.end_step(step));
    });
    assert!(course.is_over.load(Ordering::Relaxed));
}
