//! The client's checks, with the names that interop/peers/omniorb/client.cc uses.

mod dynamics;
mod echoes;
mod rest;

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane::{ObjectRef, Orb, Reference, SystemException};

use super::options::ClientOptions;
use super::servants::BouncerServant;
use super::values::{Random, SampleOptions};
use crate::interop::*;

/// A text that is empty if the check passes and otherwise describes the difference, or an
/// exception.
pub(crate) type CheckOutcome = Result<String, SystemException>;

#[derive(Debug, Default)]
pub(crate) struct CheckRunner {
    skipped: HashSet<String>,
    passed: AtomicUsize,
    failed: AtomicUsize,
}

impl CheckRunner {
    pub(crate) fn check(&self, name: &str, work: impl FnOnce() -> CheckOutcome) {
        if self.skipped.contains(name) {
            return;
        }
        let trouble = work().unwrap_or_else(|exception| format!("got exception {exception}"));
        if trouble.is_empty() {
            self.passed.fetch_add(1, Ordering::SeqCst);
            println!("ok {name}");
        } else {
            self.failed.fetch_add(1, Ordering::SeqCst);
            println!("FAIL {name} {}", trouble.replace('\n', " "));
        }
    }
}

impl CheckRunner {
    fn counts(&self) -> (usize, usize) {
        (self.passed.load(Ordering::SeqCst), self.failed.load(Ordering::SeqCst))
    }
}

pub(crate) struct Client {
    report: CheckRunner,
    suite: SuiteRef,
    servant: Arc<BouncerServant>,
    mine: BouncerRef,
    options: ClientOptions,
}

impl Client {
    fn random(&self, round: u64) -> Random {
        let ClientOptions { characters, only_labelled_discriminators, .. } = self.options;
        Random::new(round, SampleOptions { characters, only_labelled_discriminators })
    }
}

/// Runs all checks and prints a report. Returns true if all of them passed.
///
/// # Errors
///
/// The ORB cannot be built or shut down.
pub fn run_all(options: ClientOptions) -> Result<bool, String> {
    let orb = options.orb_options.orb()?;
    let client = match Client::new(&orb, options) {
        Ok(client) => client,
        Err(trouble) => {
            println!("FAIL narrow {trouble}");
            return Ok(false);
        }
    };
    client.echoes();
    client.references();
    client.dynamics();
    client.failures();
    client.the_rest();
    let mut size = 1000;
    while size <= client.options.max_message_octets {
        client.big_messages(size);
        size *= 10;
    }
    if client.options.threads > 0 {
        client.concurrent();
    }
    if client.options.shutdown {
        client.report.check("shutdown", || client.suite.shutdown().map(|()| String::new()));
    }
    let (passed, failed) = client.report.counts();
    println!("{passed} passed, {failed} failed");
    drop(client);
    orb.shutdown(true).map_err(|exception| exception.to_string())?;
    Ok(failed == 0)
}

/// Runs the checks of the echo operations. Returns the numbers of passed and failed checks.
///
/// # Errors
///
/// The client could not start.
pub fn run_echo_checks(options: ClientOptions) -> Result<(usize, usize), String> {
    let orb = options.orb_options.orb()?;
    let client = Client::new(&orb, options)?;
    client.echoes();
    Ok(client.report.counts())
}

impl Client {
    fn new(orb: &Orb, options: ClientOptions) -> Result<Self, String> {
        let suite = narrow(orb, &options.reference)?;
        let servant = Arc::new(BouncerServant::default());
        let poa = orb.root_poa();
        let mine = poa.activate(&Bouncer::servant_of(Arc::clone(&servant))).map_err(|error| error.to_string())?;
        poa.manager().activate().map_err(|error| error.to_string())?;
        let mine = BouncerRef::from_object(mine);
        let report = CheckRunner { skipped: options.skipped.clone(), ..CheckRunner::default() };
        Ok(Client { report, suite, servant, mine, options })
    }
}

fn narrow(orb: &Orb, reference: &str) -> Result<SuiteRef, String> {
    orb.string_to_reference(reference).map_err(|exception| exception.to_string())
}

/// Returns a message if the values or their texts differ, and otherwise an empty text. The texts of
/// -0 and 0 differ, although the values compare equal.
pub(crate) fn differs<T: PartialEq + Debug>(place: &str, expected: &T, got: &T) -> String {
    let shown = |value: &T| format!("{value:?}");
    if expected == got && shown(expected) == shown(got) {
        return String::new();
    }
    format!("{place} expected {expected:?} got {got:?} ")
}

pub(crate) fn same(place: &str, expected: Option<&ObjectRef>, got: Option<&ObjectRef>) -> String {
    let equal = match (expected, got) {
        (None, None) => true,
        (Some(expected), Some(got)) => expected.is_equivalent(got),
        _ => false,
    };
    if equal { String::new() } else { format!("{place} is another object ") }
}

pub(crate) fn plain<R: Reference>(reference: Option<&R>) -> Option<&ObjectRef> {
    reference.map(Reference::as_object)
}
