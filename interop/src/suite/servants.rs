//! The servants of interop.idl.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use corelane::poa::{Poa, PoaError};
use corelane::{Completion, ObjectRef, Octets, Servant, ShutdownHandle, SystemException, SystemExceptionKind};

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex, MutexGuard};

use crate::interop::*;

#[derive(Debug)]
enum Told {
    Plain(Plain),
    Reason(Reason),
    Details(Details),
}

fn told(kind: Failure, code: i32, text: &str) -> Result<i32, Told> {
    match kind {
        Failure::FailNot => Ok(code),
        Failure::FailPlain => Err(Told::Plain(Plain)),
        Failure::FailReason => Err(Told::Reason(Reason { code, why: text.to_owned() })),
        Failure::FailDetails => Err(Told::Details(prescribed_details(code, text))),
    }
}

/// Returns the members of `Details` that interop.idl prescribes.
#[must_use]
pub fn prescribed_details(code: i32, text: &str) -> Details {
    Details {
        numbers: vec![code, code.wrapping_add(1)],
        words: vec![text.to_owned(), String::new()],
        place: Point { x: code, y: code.wrapping_neg() },
        choice: OnBoolean::No(text.to_owned()),
    }
}

macro_rules! told_is {
    ($($error:path)*) => { $(impl From<Told> for $error {
        fn from(told: Told) -> Self {
            match told {
                Told::Plain(exception) => exception.into(),
                Told::Reason(exception) => exception.into(),
                Told::Details(exception) => exception.into(),
            }
        }
    })* };
}
told_is!(failures::FailError bouncer::FailBackError);

pub(super) fn given<R>(reference: Option<&R>) -> Result<&R, SystemException> {
    reference.ok_or_else(|| SystemException::new(SystemExceptionKind::BadParam, 0, Completion::No))
}

fn this_object() -> Result<ObjectRef, SystemException> {
    let current = corelane::current().ok_or_else(|| internal("no upcall is running"))?;
    current.poa.id_to_reference(&current.object_id).map_err(from_poa)
}

fn internal(why: &str) -> SystemException {
    SystemException::new(SystemExceptionKind::Internal, 0, Completion::No).with_message(why)
}

fn from_poa(error: PoaError) -> SystemException {
    internal(&error.to_string())
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Self { state: Mutex::new("a servant of the suite", LockScope::Orb, T::default()), changed: Condvar::new() }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock()
    }

    fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait(&self, time: Duration, enough: impl Fn(&T) -> bool) -> MutexGuard<'_, T> {
        let until = Monotonic::now() + time;
        let mut state = self.lock();
        while !enough(&state) && !until.is_past() {
            (state, _) = self.changed.wait_until(state, Some(until));
        }
        state
    }
}

/// The servant of `Bouncer`, which calls back and records the values that it receives.
#[derive(Debug, Default)]
pub struct BouncerServant {
    received: Shared<Vec<i32>>,
}

impl BouncerServant {
    /// Waits until `count` values have been received, for at most `time`. Returns the received
    /// values, sorted.
    #[must_use]
    pub fn wait_for(&self, count: usize, time: Duration) -> Vec<i32> {
        let mut values = self.received.wait(time, |values| values.len() >= count).clone();
        values.sort_unstable();
        values
    }
}

impl Bouncer for BouncerServant {
    fn bounce(&self, other: Option<&BouncerRef>, depth: i32) -> Result<i32, SystemException> {
        if depth <= 0 {
            return Ok(0);
        }
        let this = BouncerRef::from_object(this_object()?);
        Ok(given(other)?.bounce(Some(&this), depth - 1)? + 1)
    }

    fn fail_back(&self, kind: Failure, code: i32, text: &str) -> Result<i32, bouncer::FailBackError> {
        Ok(told(kind, code, text)?)
    }

    fn receive(&self, value: i32) -> Result<(), SystemException> {
        self.received.change(|values| values.push(value));
        Ok(())
    }
}

#[derive(Debug, Default)]
struct BottomServant {
    shared: AtomicI32,
}

impl Base for BottomServant {
    fn base_name(&self) -> Result<String, SystemException> {
        Ok("base".into())
    }

    fn shared(&self) -> Result<i32, SystemException> {
        Ok(self.shared.load(Ordering::SeqCst))
    }

    fn set_shared(&self, shared: i32) -> Result<(), SystemException> {
        self.shared.store(shared, Ordering::SeqCst);
        Ok(())
    }
}

impl Left for BottomServant {
    fn left_name(&self) -> Result<String, SystemException> {
        Ok("left".into())
    }
}

impl Right for BottomServant {
    fn right_name(&self, angle: i32) -> Result<String, right::RightNameError> {
        if angle == 0 { Ok("right".into()) } else { Err(right::Turned { angle }.into()) }
    }
}

impl Bottom for BottomServant {
    fn bottom_name(&self) -> Result<String, SystemException> {
        Ok("bottom".into())
    }

    fn copies(&self, count: u32) -> Result<right::BaseSeq, SystemException> {
        let this = BaseRef::from_object(this_object()?);
        Ok((0..count).map(|_| Some(this.clone())).collect())
    }
}

#[derive(Debug)]
struct BenchServant {
    watch: Watch,
}

impl Bench for BenchServant {
    fn nothing(&self) -> Result<(), SystemException> {
        (self.watch.0)();
        Ok(())
    }

    fn bench_octet(&self, v: u8) -> Result<u8, SystemException> {
        Ok(v)
    }

    fn bench_long(&self, v: i32) -> Result<i32, SystemException> {
        Ok(v)
    }

    fn bench_point(&self, v: &Point) -> Result<Point, SystemException> {
        Ok(*v)
    }

    fn bench_string(&self, v: &str) -> Result<String, SystemException> {
        Ok(v.to_owned())
    }

    fn bench_longs(&self, v: &[i32]) -> Result<LongSeq, SystemException> {
        Ok(v.to_vec())
    }

    fn bench_octets(&self, v: &[u8]) -> Result<OctetSeq, SystemException> {
        Ok(Octets::from(v.to_vec()))
    }

    fn bench_oneway(&self, _: u8) -> Result<(), SystemException> {
        Ok(())
    }
}

#[derive(Debug, Default)]
struct State {
    noted: u32,
    sum: i64,
    inside: u32,
    most: u32,
    level: i32,
    title: String,
    marks: LongSeq,
    paint: Option<Colour>,
}

/// The servant of `Suite`.
#[derive(Debug)]
pub struct SuiteServant {
    poa: Poa,
    stop: ShutdownHandle,
    pub(super) bouncer: BouncerRef,
    pub(super) bottom: BaseRef,
    bench: BenchRef,
    state: Shared<State>,
    watch: Watch,
}

struct Watch(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl SuiteServant {
    /// Creates a suite, whose other objects are activated in `poa`. The suite's operation
    /// `shutdown` calls `stop`.
    ///
    /// # Errors
    ///
    /// The POA refuses the objects.
    pub fn new(poa: &Poa, stop: ShutdownHandle) -> Result<Self, PoaError> {
        let bouncer = poa.activate(&Bouncer::servant(BouncerServant::default()))?;
        let bottom = poa.activate(&bottom())?;
        let bench = poa.activate(&Bench::servant(BenchServant { watch: Watch(Box::new(|| ())) }))?;
        Ok(Self {
            poa: poa.clone(),
            stop,
            bouncer: BouncerRef::from_object(bouncer),
            bottom: BaseRef::from_object(bottom),
            bench: BenchRef::from_object(bench),
            state: Shared::default(),
            watch: Watch(Box::new(|| ())),
        })
    }

    /// Sets a function that the serving thread runs in some operations of the suite.
    #[must_use]
    pub fn with_call_hook(self, watch: impl Fn() + Send + Sync + 'static) -> Self {
        Self { watch: Watch(Box::new(watch)), ..self }
    }

    /// Replaces the object of type Bench by an object whose operation `nothing` runs `watch`.
    /// `publish` gets the reference of the new object, and returns the reference that clients get.
    ///
    /// # Errors
    ///
    /// The POA refuses the object, or `publish` fails.
    pub fn with_bench<E: From<PoaError>>(
        self,
        watch: impl Fn() + Send + Sync + 'static,
        publish: impl FnOnce(&ObjectRef) -> Result<ObjectRef, E>,
    ) -> Result<Self, E> {
        let bench = self.poa.activate(&Bench::servant(BenchServant { watch: Watch(Box::new(watch)) }))?;
        Ok(Self { bench: BenchRef::from_object(publish(&bench)?), ..self })
    }

    pub(super) fn gone_object(&self) -> Result<BaseRef, SystemException> {
        let id = self.poa.activate_object(&bottom()).map_err(from_poa)?;
        let reference = self.poa.id_to_reference(&id).map_err(from_poa)?;
        self.poa.deactivate_object(&id).map_err(from_poa)?;
        Ok(BaseRef::from_object(reference))
    }

    pub(super) fn pass_on(
        &self,
        target: Option<&BouncerRef>,
        kind: Failure,
        code: i32,
        text: &str,
    ) -> Result<i32, objects::CallBackError> {
        use bouncer::FailBackError;
        given(target)?.fail_back(kind, code, text).map_err(|error| match error {
            FailBackError::Plain(exception) => exception.into(),
            FailBackError::Reason(exception) => exception.into(),
            FailBackError::Details(exception) => exception.into(),
            FailBackError::System(exception) => exception.into(),
        })
    }
}

fn bottom() -> Servant {
    Bottom::servant(BottomServant::default())
}

impl Failures for SuiteServant {
    fn fail(&self, kind: Failure, code: i32, text: &str) -> Result<i32, failures::FailError> {
        Ok(told(kind, code, text)?)
    }

    fn fail_system(&self, name: &str, minor: u32, completed: i16) -> Result<(), SystemException> {
        let completed = match completed {
            0 => Completion::Yes,
            1 => Completion::No,
            _ => Completion::Maybe,
        };
        match SystemExceptionKind::from_name(name.as_bytes()) {
            Some(kind) => Err(SystemException::new(kind, minor, completed)),
            None => Ok(()),
        }
    }
}

impl Notes for SuiteServant {
    fn note(&self, value: i32, _: &str) -> Result<(), SystemException> {
        (self.watch.0)();
        self.state.change(|state| {
            state.noted += 1;
            state.sum += i64::from(value);
        });
        Ok(())
    }

    fn take_notes(&self) -> Result<(u32, i64), SystemException> {
        let mut state = self.state.lock();
        let taken = (state.noted, state.sum);
        (state.noted, state.sum) = (0, 0);
        Ok(taken)
    }

    fn await_notes(&self, count: u32, milliseconds: u32) -> Result<u32, SystemException> {
        let time = Duration::from_millis(milliseconds.into());
        Ok(self.state.wait(time, |state| state.noted >= count).noted)
    }
}

impl Attributes for SuiteServant {
    fn implementation(&self) -> Result<String, SystemException> {
        (self.watch.0)();
        Ok("Corelane".into())
    }

    fn origin(&self) -> Result<Point, SystemException> {
        Ok(Point { x: 0, y: -1 })
    }

    fn level(&self) -> Result<i32, SystemException> {
        Ok(self.state.lock().level)
    }

    fn set_level(&self, level: i32) -> Result<(), SystemException> {
        self.state.change(|state| state.level = level);
        Ok(())
    }

    fn title(&self) -> Result<String, SystemException> {
        Ok(self.state.lock().title.clone())
    }

    fn set_title(&self, title: &str) -> Result<(), SystemException> {
        self.state.change(|state| title.clone_into(&mut state.title));
        Ok(())
    }

    fn marks(&self) -> Result<LongSeq, SystemException> {
        Ok(self.state.lock().marks.clone())
    }

    fn set_marks(&self, marks: &[i32]) -> Result<(), SystemException> {
        self.state.change(|state| state.marks = marks.to_vec());
        Ok(())
    }

    fn paint(&self) -> Result<Colour, SystemException> {
        Ok(self.state.lock().paint.unwrap_or(Colour::Red))
    }

    fn set_paint(&self, paint: Colour) -> Result<(), SystemException> {
        self.state.change(|state| state.paint = Some(paint));
        Ok(())
    }
}

impl Timing for SuiteServant {
    fn sleep(&self, milliseconds: u32) -> Result<(), SystemException> {
        std::thread::sleep(Duration::from_millis(milliseconds.into()));
        Ok(())
    }

    fn meet(&self, callers: u32, milliseconds: u32) -> Result<u32, SystemException> {
        self.state.change(|state| {
            if state.inside == 0 {
                state.most = 0;
            }
            state.inside += 1;
            state.most = state.most.max(state.inside);
        });
        let time = Duration::from_millis(milliseconds.into());
        let mut state = self.state.wait(time, |state| state.most >= callers);
        state.inside -= 1;
        Ok(state.most)
    }
}

impl Suite for SuiteServant {
    fn server_constants(&self) -> Result<Constants, SystemException> {
        Ok(prescribed_constants())
    }

    fn server_bench(&self) -> Result<Option<BenchRef>, SystemException> {
        Ok(Some(self.bench.clone()))
    }

    fn shutdown(&self) -> Result<(), SystemException> {
        self.stop.shutdown();
        Ok(())
    }
}

/// Returns the constants of interop.idl.
#[must_use]
pub fn prescribed_constants() -> Constants {
    Constants {
        an_octet: AN_OCTET,
        a_boolean: A_BOOLEAN,
        a_char: A_CHAR,
        a_short: A_SHORT,
        a_ushort: AN_USHORT,
        a_long: A_LONG,
        a_ulong: AN_ULONG,
        a_longlong: A_LONGLONG,
        a_ulonglong: AN_ULONGLONG,
        a_float: A_FLOAT,
        a_double: A_DOUBLE,
        a_string: A_STRING.to_owned(),
        double_bound: DOUBLE_BOUND,
        some_bits: SOME_BITS,
        a_colour: A_COLOUR,
        quarter: right::QUARTER,
    }
}

/// Makes the suite's servant.
#[must_use]
pub fn suite_servant(suite: SuiteServant) -> Servant {
    Suite::servant_of(Arc::new(suite))
}
