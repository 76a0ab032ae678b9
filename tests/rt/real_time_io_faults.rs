//! Real-time I/O under attack and after sudden ends: killed processes, floods of connection
//! requests, buffers that fill.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::{IoClass, ObjectRef, Orb, SystemException};
use corelane_net::{Endpoint, IoProperties, TcpTransport, Transport, WaitLimit};
use corelane_rio::status::read_reports;
use corelane_rio::{RioConfig, RioTransport};
use corelane_sys::bpf::AttachMode;
use corelane_sys::clock::Monotonic;
use corelane_sys::interface::Offload;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::socket::{self, RawPacketSender};
use corelane_sys::{interface, poll, thread};
use corelane_tests::real_time::call_who;
use corelane_wire::Encoder;

#[path = "../src/two_namespaces.rs"]
mod two_namespaces;

use two_namespaces::{HIGH, channel, has_xdp, in_two_namespaces, ip, is_refused, lanes, object, wait_until, with};

/// Locked by each test, so that one test at a time loads XDP programs. A test computes the number
/// of the map of best effort from the number of the next map.
static ALONE: Mutex<()> = Mutex::new("one test at a time", LockScope::Orb, ());

fn config() -> RioConfig {
    RioConfig::for_interface("rio0").attach_mode(AttachMode::Generic)
}

/// Returns the TCP count `name` of the calling thread's network namespace.
fn tcp_count(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let found = names.split(' ').zip(values.split(' ')).find(|(found, _)| *found == name);
    found.unwrap_or_else(|| panic!("the kernel has no count {name}")).1.parse().unwrap()
}

/// Returns the number of processes that [`nothing_of_a_killed_process_stays`] kills: the
/// environment variable `CORELANE_KILLS`, or 5 if it is unset.
fn kills() -> usize {
    std::env::var("CORELANE_KILLS").map_or(5, |text| text.parse().expect("CORELANE_KILLS is a number"))
}

fn call_with_octets(object: &ObjectRef) -> Result<(), SystemException> {
    static OPERATION: corelane::mapping::Operation = corelane::mapping::Operation::new("who");
    let write = |encoder: &mut Encoder<'_>| {
        encoder.write_bytes(&[7; 8_000]);
        Ok(())
    };
    object.invoke(&OPERATION, &write).map(drop)
}

/// Fails if a killed process leaves an XDP program, a kernel thread, a socket or a setting.
#[test]
fn nothing_of_a_killed_process_stays() {
    let _alone = ALONE.lock();
    if is_refused() {
        return;
    }
    let sees_kernel_threads = thread::find_kernel_thread("kthreadd").unwrap().is_some();
    if !sees_kernel_threads {
        println!("the process does not see the kernel's threads, so their end is not tested");
    }
    let (to_server, ended) = channel::<u32>();
    in_two_namespaces(
        move |to_client| {
            let settings = || ip("-details link show dev rio0");
            let before = settings();
            assert!(!has_xdp());
            for cycle in 0..kills() {
                let mut holder = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "a_process_that_serves_a_lane", "--ignored", "--nocapture"])
                    .env("CORELANE_SERVE", "rio0")
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(|line| line.unwrap());
                let mut after = |name: &str| {
                    let line = lines.find_map(|line| line.split_once(name).map(|(_, rest)| rest.to_owned()));
                    line.unwrap_or_else(|| panic!("cycle {cycle}: the process ended before {name}"))
                };
                to_client.send(Some(after("reference "))).unwrap();
                let kernel_threads = [after("thread "), after("thread ")];
                after("loaded");
                assert!(has_xdp());
                for name in &kernel_threads {
                    let found = thread::find_kernel_thread(name).unwrap();
                    assert_eq!(found.is_some(), sees_kernel_threads, "cycle {cycle}: {name}");
                }
                wait_until(|| read_reports().unwrap().reports.iter().any(|report| report.process == Some(holder.id())));
                // `kill` sends SIGKILL.
                holder.kill().unwrap();
                holder.wait().unwrap();
                wait_until(|| !has_xdp());
                for name in &kernel_threads {
                    wait_until(|| thread::find_kernel_thread(name).unwrap().is_none());
                }
                assert_eq!(settings(), before, "cycle {cycle}");
                assert!(read_reports().unwrap().reports.is_empty(), "cycle {cycle}");
                assert!(ended.recv_timeout(Duration::from_secs(60)).unwrap() > 0, "cycle {cycle}: no load");
            }
            println!("{} processes were killed", kills());
            to_client.send(None).unwrap();
        },
        move |reference| {
            let client = Orb::new().unwrap();
            let object = client.string_to_object(&reference).unwrap().unwrap();
            let deadline = Monotonic::now() + Duration::from_secs(60);
            let mut calls = 0;
            while call_with_octets(&object).is_ok() && !deadline.is_past() {
                calls += 1;
            }
            to_server.send(calls).unwrap();
        },
    );
}

#[test]
#[ignore = "a part of nothing_of_a_killed_process_stays"]
fn a_process_that_serves_a_lane() {
    if std::env::var("CORELANE_SERVE").is_err() {
        return;
    }
    let transport = Arc::new(RioTransport::new(config().has_best_effort_thread(true)));
    let server = with(&transport).listen("tcp:10.99.0.1:0").build().unwrap();
    let pool = lanes(&server, IoClass::Guaranteed { bytes: 200_000, period: Duration::from_millis(10) });
    let high = object(&server, pool, HIGH);
    println!("\nreference {high}");
    let thread = transport.streams()[0].kernel_thread.clone().unwrap();
    // The kernel numbers maps in the order of their creation, and the map of best effort is created
    // just before the map of the stream.
    let (prefix, number) = thread.split_once("map:").unwrap();
    println!("thread {thread}\nthread {prefix}map:{}", number.parse::<u32>().unwrap() - 1);
    wait_until(|| transport.streams()[0].frame_counts.unwrap().queued_frames > 100);
    println!("loaded");
    // The process ends after a minute if it is not killed.
    std::thread::sleep(Duration::from_secs(60));
}

/// Returns a TCP connection request (SYN) with a chosen source (RFC 791, RFC 9293).
fn connection_request(source: (Ipv4Addr, u16), target: (Ipv4Addr, u16)) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend(source.0.octets());
    packet.extend(target.0.octets());
    packet.extend(source.1.to_be_bytes());
    packet.extend(target.1.to_be_bytes());
    // Sequence and acknowledgement numbers, the length of the header, SYN, the window, checksum and
    // urgent pointer.
    packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    // The pseudo header has the addresses, the protocol and the length of the segment.
    let words = packet[12..].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum = words.sum::<u32>() + 6 + 20;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = !u16::try_from(sum).unwrap();
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Fails if a flood of connection requests with false sources keeps new clients out, ends an
/// established connection, delays it without end, or enters the queue of the stream.
#[test]
fn a_flood_of_connection_requests_harms_neither_old_nor_new_connections() {
    /// Number of calls on the old connection, and of new connections, during the flood.
    const CALLS: u64 = 50;
    /// Minimum number of requests of the flood, larger than the queue of a listener.
    const LEAST_REQUESTS: u64 = 10_000;
    let _alone = ALONE.lock();
    if is_refused() {
        return;
    }
    let (to_server, sent) = channel::<u64>();
    in_two_namespaces(
        move |to_client| {
            let setting = "/proc/sys/net/ipv4/tcp_syncookies";
            // In a container, the settings may be read-only.
            let written = std::fs::write(setting, "1");
            if std::fs::read_to_string(setting).unwrap().trim_end() != "1" {
                println!("not run: the kernel sends no SYN cookies, and {setting} cannot be set: {written:?}");
                return to_client.send(None).unwrap();
            }
            // The answers to false sources leave by the link and end there.
            ip("route add 198.18.0.0/15 via 10.99.0.2");
            let transport = Arc::new(RioTransport::new(config()));
            let server = with(&transport).listen("tcp:10.99.0.1:0").build().unwrap();
            let high = object(&server, lanes(&server, IoClass::Priority), HIGH);
            to_client.send(Some(high.to_string())).unwrap();
            let requests = sent.recv_timeout(Duration::from_secs(300)).unwrap();
            let frames = transport.streams()[0].frame_counts.unwrap();
            let best_effort = transport.best_effort_frames().unwrap().undeliverable_frames;
            assert!(tcp_count("SyncookiesSent") > 0, "the flood fills the queue of the listener");
            // The kernel may drop packets before the XDP program sees them, and drops many on a
            // loaded machine.
            assert!(best_effort >= LEAST_REQUESTS / 2, "{best_effort} of {requests} requests were best effort");
            // A call and its connection take less than 40 frames.
            let of_calls = CALLS..CALLS * 2 * 40;
            assert!(of_calls.contains(&frames.queued_frames) && of_calls.end < best_effort, "{frames:?} of {requests}");
            assert_eq!(frames.undeliverable_frames, 0);
            to_client.send(None).unwrap();
        },
        move |reference| {
            let old = Orb::new().unwrap();
            let old_object = old.string_to_object(&reference).unwrap().unwrap();
            let connection = call_who(&old_object).unwrap().connection;
            let port = connected_port();
            let stop = AtomicBool::new(false);
            let requests = std::sync::atomic::AtomicU64::new(0);
            std::thread::scope(|scope| {
                let flood = scope.spawn(|| {
                    let sender = RawPacketSender::open().unwrap();
                    let deadline = Monotonic::now() + Duration::from_secs(240);
                    for number in (0..=u32::MAX).cycle() {
                        if stop.load(Ordering::Relaxed) || deadline.is_past() {
                            break;
                        }
                        let [_, high, middle, low] = number.to_be_bytes();
                        let source = (Ipv4Addr::new(198, 18 + high % 2, middle, low), 1_024 + u16::from(high));
                        if sender.send(&connection_request(source, (Ipv4Addr::new(10, 99, 0, 1), port))).is_ok() {
                            requests.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
                let _ended = Ended(&stop);
                wait_until(|| requests.load(Ordering::Relaxed) >= LEAST_REQUESTS);
                for _ in 0..CALLS {
                    assert_eq!(call_who(&old_object).unwrap().connection, connection);
                    let new = Orb::new().unwrap();
                    let object = new.string_to_object(&reference).unwrap().unwrap();
                    assert_eq!(call_who(&object).unwrap().lane, 1);
                }
                assert!(!flood.is_finished(), "the flood lasts as long as the calls");
            });
            to_server.send(requests.load(Ordering::Relaxed)).unwrap();
        },
    );
}

struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the remote port of the only connection of the calling thread's network namespace.
fn connected_port() -> u16 {
    let list = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let rows = list.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<&str>>());
    // Columns: number, local address, remote address, state (01: established).
    let mut ports = rows.filter(|row| row[3] == "01").map(|row| row[2].split_once(':').unwrap().1.to_owned());
    let port = ports.next().unwrap();
    assert_eq!(ports.next(), None, "{list}");
    u16::from_str_radix(&port, 16).unwrap()
}

/// Returns the sum of the kernel's counts of merged and dropped received packets, caused by full
/// buffers.
fn prunes() -> u64 {
    ["PruneCalled", "RcvPruned", "TCPRcvQDrop"].map(tcp_count).iter().sum()
}

/// Fails if the kernel merges or drops packets of a peer that sends the bytes of two periods before
/// the first read.
#[test]
fn the_receive_buffer_has_room_for_the_bytes_of_two_periods() {
    const BYTES: u32 = 60_000;
    const SENT: usize = 2 * BYTES as usize;
    let _alone = ALONE.lock();
    if is_refused() {
        return;
    }
    in_two_namespaces(
        |to_client| {
            let chosen = RioConfig::for_interface("rio0").attach_mode(AttachMode::Driver);
            // A buffer that is too small shows that the test can fail.
            let small = chosen.clone().buffer_sizes(131_072, 131_072);
            let [chosen, small] = [chosen, small].map(|config| {
                let transport = RioTransport::new(config);
                let class = IoClass::Guaranteed { bytes: BYTES, period: Duration::from_millis(10) };
                let io = IoProperties { class, ..IoProperties::default() };
                let listener = transport.listen_with_io_properties(&Endpoint::tcp("10.99.0.1", 0), &io).unwrap();
                let Endpoint::Tcp { port, .. } = listener.local_endpoint() else { panic!("a port") };
                let before = prunes();
                to_client.send(Some(port.to_string())).unwrap();
                wait_until(|| poll::wait_readable(listener.readiness_descriptor(), Some(Monotonic::now())).unwrap());
                let server = listener.accept().unwrap();
                let unread = || socket::unread_bytes(server.readiness_descriptor().unwrap()).unwrap();
                wait_until(|| unread() == SENT || prunes() > before);
                assert!(transport.streams()[0].frame_counts.unwrap().queued_frames > 0);
                prunes() - before
            });
            assert!(chosen == 0 && small > 0, "{chosen} and {small} prunes");
            to_client.send(None).unwrap();
        },
        |port| {
            // The link must deliver segments with checksums, as a network card does. By default a
            // link between namespaces delivers packets of 64 KiB without checksums.
            ip("link set rio1 gso_max_segs 1");
            interface::set_offload("rio1", Offload::SentChecksums, false).unwrap();
            let stream = TcpTransport::new().connect(&Endpoint::tcp("10.99.0.1", port.parse().unwrap()), None).unwrap();
            let mut left = SENT;
            while left > 0 {
                left -= stream.send(&vec![7; left], WaitLimit::Block).unwrap();
            }
        },
    );
}
