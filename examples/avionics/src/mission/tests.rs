use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corelane::Any;
use corelane_services::cores::AdmissionService;
use corelane_services::cores::protocol::TaskRecord;
use corelane_services::events::EventType;
use corelane_services::events::cos_event_comm::{self, push_consumer::PushError};
use corelane_sys::clock::{Monotonic, now};
use corelane_sys::lock::Condvar;

use super::channel::MAX_SETS;
use super::plan::{ENGINES, INERTIAL, POSITION, RADAR};
use super::*;
use crate::admission;
use crate::avionics::{ConsumerCounts, MapStoreRef, MissionComputer, MissionComputerRef, Recorder, Report};
use crate::clients::{attitude, contacts, engines, position};

/// A time far above the duration of any step.
const GENEROUS: Duration = Duration::from_secs(60);

struct NoRecorder;

impl Recorder for NoRecorder {
    fn serves(
        &self,
        _: Option<&MissionComputerRef>,
        _: Option<&MapStoreRef>,
        _: Option<&ObjectRef>,
        _: Option<&EventComputerRef>,
        _: &str,
    ) -> Result<(), SystemException> {
        Ok(())
    }

    fn take(&self, _: &Report) -> Result<(), SystemException> {
        Ok(())
    }
}

/// A mission computer without sensors, so that events come from the test alone.
struct Scene {
    orb: Orb,
    mission: Mission,
    admission: Option<AdmissionService>,
}

impl Scene {
    fn new(has_admission: bool) -> Self {
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        orb.root_poa().manager().activate().unwrap();
        let computer = Arc::new(Computer::new());
        let flight = orb.root_poa().activate(&Computer::servant_of(Arc::clone(&computer))).unwrap();
        let recorder = RecorderRef::from_object(orb.root_poa().activate(&Recorder::servant(NoRecorder)).unwrap());
        let admission = has_admission.then(|| admission::serve(&orb).unwrap());
        let tasks = admission.as_ref().map(|admission| (admission.reference().clone(), flight));
        // The time-out is so long that no call of a test ends at its deadline.
        let misses = MissPolicy { send_timeout: 2 * GENEROUS, ..MissPolicy::default() };
        let mission = Mission::serve(&orb, &computer, tasks, &recorder, misses).unwrap();
        Scene { orb, mission, admission }
    }

    fn push(&self, event_type: EventType, value: Any) {
        let output = self.mission.servant.channel.supplier(event_type, 20).unwrap();
        push(&output, event_type, now().as_nanos() / 100, value).unwrap();
    }

    fn counts(&self, name: &str) -> ConsumerCounts {
        let counts = self.mission.servant.channel.counts();
        let found = counts.into_iter().find(|consumer| consumer.name == name).unwrap();
        let parts = found.delivered + found.waiting + found.overflowed + found.suspended + found.failed;
        assert_eq!(found.matched, parts, "{name}");
        found
    }

    fn wait_for(&self, name: &str, delivered: u64) {
        wait_until(|| self.counts(name).delivered >= delivered);
        assert_eq!(self.counts(name).delivered, delivered, "{name}");
    }

    fn tasks(&self) -> Vec<TaskRecord> {
        self.admission.as_ref().unwrap().reference().snapshot().unwrap().0
    }

    fn task_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tasks().into_iter().map(|task| task.name).collect();
        names.sort();
        names
    }
}

fn wait_until(mut is_done: impl FnMut() -> bool) {
    let deadline = now() + GENEROUS;
    while !is_done() {
        assert!(!Monotonic::is_past(deadline), "nothing happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn navigation_fires_only_for_inertial_and_position() {
    let scene = Scene::new(false);
    for n in 0..3 {
        scene.push(INERTIAL, Any::new(&attitude(n)).unwrap());
    }
    assert_eq!(scene.counts("navigation").matched, 0);
    scene.push(POSITION, Any::new(&position(0)).unwrap());
    scene.wait_for("navigation", 1);
    scene.push(POSITION, Any::new(&position(1)).unwrap());
    assert_eq!(scene.counts("navigation").matched, 1);
    scene.push(INERTIAL, Any::new(&attitude(3)).unwrap());
    scene.wait_for("navigation", 2);
}

#[test]
fn hud_fires_for_navigation_and_for_threats() {
    let scene = Scene::new(false);
    scene.push(RADAR, Any::new(&contacts(0)).unwrap());
    scene.wait_for("hud", 1);
    scene.push(INERTIAL, Any::new(&attitude(0)).unwrap());
    scene.push(POSITION, Any::new(&position(0)).unwrap());
    scene.wait_for("hud", 2);
    scene.push(ENGINES, Any::new(&engines(0)).unwrap());
    scene.wait_for("endurance", 1);
    assert_eq!(scene.counts("hud").matched, 2);
}

#[test]
fn event_of_another_type_is_counted_as_a_failure_of_its_consumer() {
    let scene = Scene::new(false);
    scene.push(RADAR, Any::new(&engines(0)).unwrap());
    wait_until(|| scene.counts("threats").failed == 1);
    assert_eq!((scene.counts("threats").delivered, scene.counts("hud").matched), (0, 0));
}

/// A display whose calls wait until the gate is open.
struct StuckDisplay {
    is_open: Mutex<bool>,
    opened: Condvar,
    begun: AtomicU64,
}

impl cos_event_comm::PushConsumer for StuckDisplay {
    fn push(&self, _: &Any) -> Result<(), PushError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let mut is_open = self.is_open.lock();
        while !*is_open {
            is_open = self.opened.wait_until(is_open, Some(now() + GENEROUS)).0;
        }
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

#[test]
fn stuck_display_loses_exactly_what_its_queue_cannot_hold_and_others_lose_nothing() {
    const SAMPLES: u64 = 100;
    let scene = Scene::new(false);
    let is_open = Mutex::new("test gate", LockScope::Orb, false);
    let display = Arc::new(StuckDisplay { is_open, opened: Condvar::new(), begun: AtomicU64::new(0) });
    let servant = <StuckDisplay as cos_event_comm::PushConsumer>::servant_of(Arc::clone(&display));
    let consumer = scene.orb.root_poa().activate(&servant).unwrap();
    scene.mission.servant.attach("display", Some(&consumer)).unwrap();
    for n in 1..=SAMPLES {
        scene.push(ENGINES, Any::new(&engines(1)).unwrap());
        scene.wait_for("endurance", n);
        wait_until(|| display.begun.load(Ordering::Relaxed) > 0);
    }
    let endurance = scene.counts("endurance");
    assert_eq!((endurance.matched, endurance.overflowed), (SAMPLES, 0));
    // One event is in the display's call, and its queue in the lane of the samples is full.
    let held = MAX_SETS as u64 + 1;
    let shown = scene.counts("display");
    assert_eq!((shown.matched, shown.delivered, shown.waiting), (SAMPLES, 0, held));
    assert_eq!((shown.overflowed, shown.failed), (SAMPLES - held, 0));
    *display.is_open.lock() = true;
    display.opened.notify_all();
    scene.wait_for("display", held);
    assert_eq!(display.begun.load(Ordering::Relaxed), held);
}

#[test]
fn modes_admit_their_tasks_and_suspend_the_work_of_the_other_mode() {
    let scene = Scene::new(true);
    let radar = || scene.push(RADAR, Any::new(&contacts(0)).unwrap());
    let computer = &scene.mission.servant;
    assert_eq!(scene.task_names(), ["endurance", "health", "hud", "navigation", "threats"]);
    computer.enter(Mode::Attack).unwrap();
    wait_until(|| scene.task_names() == ["endurance", "hud", "navigation", "threats", "tracking"]);
    scene.push(INERTIAL, Any::new(&attitude(0)).unwrap());
    scene.push(POSITION, Any::new(&position(0)).unwrap());
    radar();
    scene.wait_for("tracking", 1);
    computer.enter(Mode::Cruise).unwrap();
    scene.push(INERTIAL, Any::new(&attitude(1)).unwrap());
    scene.push(POSITION, Any::new(&position(1)).unwrap());
    radar();
    wait_until(|| scene.counts("tracking").suspended == 1);
    assert_eq!(scene.counts("tracking").delivered, 1);
}

#[test]
fn mode_that_does_not_fit_is_refused_with_its_test_and_changes_nothing() {
    let scene = Scene::new(true);
    let before = scene.task_names();
    // The survey leaves no room for the tasks of the mode attack. At most 95 % of a core may be
    // promised: the mode cruise has 10 %, and the survey gets 84 %.
    let survey = admission::task("survey", Duration::from_millis(840), 1, Duration::from_secs(1));
    scene.admission.as_ref().unwrap().reference().admit(&survey).unwrap();
    let Err(EnterError::Refused(refused)) = scene.mission.servant.enter(Mode::Attack) else { panic!("admitted") };
    assert_eq!(refused.task, "tracking");
    assert!(refused.reason.starts_with("capacity test: core 0 "), "{}", refused.reason);
    assert!(before.iter().all(|name| scene.task_names().contains(name)));
    assert!(!scene.task_names().contains(&"tracking".to_owned()));
    scene.push(RADAR, Any::new(&contacts(0)).unwrap());
    scene.wait_for("threats", 1);
}

#[test]
fn unknown_sensors_and_nil_consumers_are_refused() {
    let scene = Scene::new(false);
    let object = scene.mission.reference.as_object();
    for (name, consumer) in [("inertial", None), ("wing", Some(object)), ("bulk", Some(object))] {
        let refusal = scene.mission.servant.attach(name, consumer).unwrap_err();
        assert_eq!(refusal.kind(), SystemExceptionKind::BadParam, "{name}");
    }
}
