//! Two servers with one thread each that wait for each other.

use std::sync::Arc;
use std::time::Duration;

use corelane::dynamic::{DynamicServant, RequestError, ServerRequest};
use corelane::{CallPolicies, Dispatch, ObjectRef, Orb, PoolConfig, Servant, SystemException, Timeout, TypeCode};
use corelane_sys::lock::{LockScope, Mutex};

type Seen = Arc<Mutex<Vec<String>>>;

struct Passes {
    to: Mutex<Option<ObjectRef>>,
    seen: Seen,
}

struct Servants(Arc<Passes>);

impl DynamicServant for Servants {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Passes:1.0"]
    }

    fn invoke(&self, request: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        request.arguments(&[])?;
        let to = self.0.to.lock().clone().ok_or_else(SystemException::bad_operation)?;
        match to.request("pass").returns(TypeCode::VOID).invoke() {
            Ok(_) => request.reply(&[]),
            Err(RequestError::System(exception)) => {
                self.0.seen.lock().push(exception.to_string());
                Err(exception)
            }
            Err(RequestError::User(_)) => Err(SystemException::bad_operation()),
        }
    }
}

fn server(name: &str, seen: &Seen) -> (Orb, Arc<Passes>, String) {
    let pool = PoolConfig::default().name(name).dispatch(Dispatch::LeaderFollowers { threads: 1 });
    let impatient = CallPolicies { timeout: Some(Timeout::Precise(Duration::from_secs(2))), ..CallPolicies::NONE };
    let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").call_policies(impatient).build().unwrap();
    let passes = Arc::new(Passes { to: Mutex::new("next", LockScope::Orb, None), seen: Arc::clone(seen) });
    let object = orb.root_poa().activate_object(&Servant::dynamic(Servants(Arc::clone(&passes)))).unwrap();
    orb.root_poa().manager().activate().unwrap();
    let reference = orb.root_poa().id_to_reference(&object).unwrap().to_string();
    (orb, passes, reference)
}

#[test]
fn timeout_in_a_cycle_of_waiting_servers_names_a_waiting_thread() {
    let seen = Seen::new(Mutex::new("exceptions", LockScope::Orb, Vec::new()));
    let (one, first, first_reference) = server("first", &seen);
    let (other, second, second_reference) = server("second", &seen);
    *first.to.lock() = one.string_to_object(&second_reference).unwrap();
    *second.to.lock() = other.string_to_object(&first_reference).unwrap();
    let client = Orb::new().unwrap();
    let object = client.string_to_object(&first_reference).unwrap().unwrap();
    // If the machine pauses, a deadline may pass before both servers wait, so the test makes up to
    // five calls.
    let mut all = Vec::new();
    for _ in 0..5 {
        seen.lock().clear();
        object.request("pass").invoke().unwrap_err();
        // Only the first exception is certain: it unblocks the second call, which may then succeed.
        let told = std::mem::take(&mut *seen.lock()).swap_remove(0);
        let named = ["first/l0", "second/l0"].iter().any(|thread| told.contains(thread));
        assert!(told.starts_with("TIMEOUT"), "{told}");
        if named && told.contains("nested_wait") {
            return;
        }
        all.push(told);
    }
    panic!("no exception names a waiting thread: {all:?}");
}
