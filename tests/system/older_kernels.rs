//! Fall-backs for kernels without a feature, and the errors of features without a fall-back.
//!
//! A seccomp filter makes system calls of a test's threads fail as on an older kernel
//! (docs/kernels.md).

use std::thread;
use std::time::Duration;

use corelane::rt::{LaneConfig, LanesConfig, Reservation};
use corelane::{Dispatch, NestedWait, Orb, OrbError, PoolConfig, SystemExceptionKind, Timeout};
use corelane_sys::clock::Monotonic;
use corelane_sys::epoll::{Epoll, EpollEvent};
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::older_kernel::{KernelRelease, OLDEST_SUPPORTED, USED_FEATURES, emulate, supported_features};
use corelane_sys::process;
use corelane_sys::ring::{RingPair, RingSizes};
use corelane_tests::{client, serve_with};

/// Runs `body` on a thread for which the kernel behaves like an older kernel. The threads that this
/// thread starts see the older kernel, too.
fn on_older_kernel<T: Send + 'static>(release: KernelRelease, body: impl FnOnce() -> T + Send + 'static) -> T {
    let pretending = thread::spawn(move || {
        emulate(release).expect("the kernel filters system calls (CONFIG_SECCOMP_FILTER)");
        body()
    });
    pretending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

const MUCH_OLDER: KernelRelease = (3, 13);

#[test]
fn older_kernel_has_the_features_of_its_release() {
    let here = supported_features();
    assert_eq!(on_older_kernel(MUCH_OLDER, supported_features), [""; 0]);
    for release in USED_FEATURES.iter().map(|newer| newer.since) {
        let expected: Vec<&str> =
            USED_FEATURES.iter().filter(|newer| newer.since <= release).map(|newer| newer.name).collect();
        let expected: Vec<&str> = expected.into_iter().filter(|name| here.contains(name)).collect();
        assert_eq!(on_older_kernel(release, supported_features), expected, "{release:?}");
    }
    assert_eq!(supported_features(), here);
}

#[test]
fn precise_wait_of_epoll_does_not_end_early() {
    on_older_kernel(OLDEST_SUPPORTED, || {
        let (epoll, mut events) = (Epoll::new().unwrap(), [EpollEvent::EMPTY; 4]);
        for time in [Duration::from_nanos(1), Duration::from_micros(300), Duration::from_millis(2)] {
            let start = Monotonic::now();
            assert_eq!(epoll.wait(&mut events, Some(time)).unwrap(), 0);
            assert!(start.elapsed() >= time, "{time:?} were cut short");
        }
    });
}

#[test]
fn lock_with_priority_inheritance_ends_its_waits_at_their_deadlines() {
    on_older_kernel(OLDEST_SUPPORTED, || {
        let lock = PiMutex::new("older kernel", LockScope::Orb, 0);
        let guard = lock.lock();
        thread::scope(|scope| {
            // The waiting thread enters the kernel and leaves it at its deadline.
            let waiter = scope.spawn(|| lock.lock_until(Some(Monotonic::now() + Duration::from_millis(2))).is_none());
            assert!(waiter.join().unwrap(), "two threads hold the lock");
        });
        drop(guard);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 4000);
    });
}

#[test]
fn shared_memory_is_made_without_the_no_exec_flag() {
    on_older_kernel(OLDEST_SUPPORTED, || {
        let sizes = RingSizes::at_least(4096, 4096);
        let (_client, fd) = RingPair::create(sizes).unwrap();
        assert!(RingPair::open(std::os::fd::AsFd::as_fd(&fd), sizes).is_ok());
    });
}

#[test]
fn line_is_printed_after_a_check_for_room() {
    assert!(on_older_kernel(OLDEST_SUPPORTED, || process::try_print_error(
        "(a line that a test prints in the form for kernels before Linux 6.4)"
    )));
}

#[test]
fn an_orb_serves_and_calls_over_every_transport() {
    let folder = std::env::temp_dir().join(format!("corelane-older-kernel-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let addresses = [
        "tcp:127.0.0.1:0".to_owned(),
        format!("unix:{}", folder.join("unix").display()),
        format!("shm:{}", folder.join("shm").display()),
    ];
    on_older_kernel(OLDEST_SUPPORTED, move || {
        for address in &addresses {
            for dispatch in [Dispatch::LeaderFollowers { threads: 2 }, Dispatch::Reactive] {
                let nested_wait = Some(NestedWait::Serve { max_depth: 2 });
                let pool = PoolConfig::default().dispatch(dispatch).nested_wait(nested_wait);
                let server = serve_with(Orb::builder().pool(pool).listen(address));
                let (_orb, probe) = client(&server.ior);
                for timeout in [Timeout::Precise(Duration::from_secs(60)), Duration::from_secs(60).into()] {
                    let probe = probe.with_timeout(timeout);
                    assert_eq!(probe.cube_octet(3).unwrap(), 27, "{address}, {dispatch:?}");
                    let large = vec![0xa5; 300_000];
                    assert_eq!(&*probe.mirror(&large).unwrap(), &large[..]);
                }
            }
        }
        let mutex = Orb::new().unwrap().real_time().create_mutex();
        let guard = mutex.lock().unwrap();
        let waiter = mutex.clone();
        let waited = thread::spawn(move || waiter.try_lock(Duration::from_millis(2)).unwrap().is_none());
        assert!(waited.join().unwrap());
        drop(guard);
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_client_without_shared_memory_takes_the_next_address() {
    let path = std::env::temp_dir().join(format!("corelane-no-memfd-{}", std::process::id()));
    let shared_memory = format!("shm:{}", path.display());
    let both = serve_with(Orb::builder().listen(&shared_memory).listen("tcp:127.0.0.1:0"));
    let ior = both.ior.clone();
    on_older_kernel(MUCH_OLDER, move || {
        let (_orb, probe) = client(&ior);
        assert_eq!(probe.cube_octet(3).unwrap(), 27);
    });
    assert_eq!(both.orb.event_counts().connections_opened, 1);
    drop(both);
    let alone = serve_with(Orb::builder().listen(&shared_memory));
    let ior = alone.ior.clone();
    let refused = on_older_kernel(MUCH_OLDER, move || {
        let orb = Orb::new().unwrap();
        let object = orb.string_to_object(&ior).unwrap().unwrap();
        object.validate_connection().unwrap_err()
    });
    assert_eq!(refused.kind(), SystemExceptionKind::Transient, "{refused}");
}

#[test]
fn lane_without_its_reservation_serves_in_the_ordinary_class_and_reports_it() {
    on_older_kernel(MUCH_OLDER, || {
        let server = serve_with(Orb::builder().listen("tcp:127.0.0.1:0"));
        let period = Duration::from_millis(100);
        let reservation = Reservation { runtime: Duration::from_millis(1), deadline: period, period };
        let lane = LaneConfig::default().reservation(Some(reservation));
        let lanes = LanesConfig::default().lanes([lane]);
        server.orb.real_time().create_threadpool_with_lanes(&lanes).unwrap();
        assert_eq!(server.orb.event_counts().thread_schedulings_refused, 1);
    });
}

#[test]
fn memory_locking_without_the_feature_is_an_error() {
    let built = on_older_kernel(MUCH_OLDER, || Orb::builder().lock_memory().build().map(drop));
    assert!(matches!(built, Err(OrbError::MemoryLock(_))), "{built:?}");
}

#[test]
fn kernels_page_has_a_row_for_each_feature() {
    let page = include_str!("../../docs/kernels.md");
    for newer in USED_FEATURES {
        let row = page.lines().find(|line| line.contains(&format!("`{}`", newer.name)) && line.starts_with('|'));
        let row = row.unwrap_or_else(|| panic!("docs/kernels.md has no row for `{}`", newer.name));
        let (major, minor) = newer.since;
        assert!(row.contains(&format!("| {major}.{minor} |")), "{row}");
    }
    let (major, minor) = OLDEST_SUPPORTED;
    assert!(
        page.contains(&format!("Linux {major}.{minor}")),
        "docs/kernels.md does not name the oldest supported version"
    );
}
