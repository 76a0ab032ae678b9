//! Operations on a server itself, over a Unix socket for permitted users.
//!
//! The server closes the connection of a user without permission, and prints a line about it, at
//! most one a second. At the server's addresses for clients, the control object refuses every call.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use corelane::{Completion, Orb, Peer, Reference, Servant, SystemException, SystemExceptionKind as Kind, Transports};
use corelane_net::{ConnectionProperties, Endpoint, Listener, Stream, Transport, UnixTransport};
use corelane_services::naming::corelane_naming::control::{BackupError, BindAllError};
use corelane_services::naming::corelane_naming::{BindOutcomes, Control, ControlRef, NewBinding};
use corelane_services::naming::cos_naming::{NameComponent, NamingContextRef};
use corelane_services::naming::{CONTROL_OBJECT_KEY, NamingService};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_wire::Version;
use corelane_wire::ior::{Ior, ProfileAddress, TaggedProfile};

use crate::text::printable;

const PAUSE: Duration = Duration::from_secs(1);

struct RefusalLog(Mutex<Option<Monotonic>>);

impl RefusalLog {
    const fn new() -> Self {
        RefusalLog(Mutex::new("refused control", LockScope::Orb, None))
    }

    fn say(&self, what: &str) {
        let mut next = self.0.lock();
        if !next.is_none_or(Monotonic::is_past) {
            return;
        }
        *next = Some(Monotonic::now() + PAUSE);
        drop(next);
        // The threads that serve clients must not block, so the line may be lost.
        corelane_sys::process::try_print_error(what);
    }
}

static REFUSED: RefusalLog = RefusalLog::new();

#[derive(Debug)]
struct AllowedUnix {
    users: Vec<u32>,
}

#[derive(Debug)]
struct AllowedListener {
    inner: Box<dyn Listener>,
    users: Vec<u32>,
}

impl Transport for AllowedUnix {
    fn name(&self) -> &'static str {
        "unix for some users"
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        UnixTransport.supports(endpoint)
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        UnixTransport.connect_with_properties(endpoint, properties, deadline)
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        let inner = UnixTransport.listen(endpoint)?;
        Ok(Box::new(AllowedListener { inner, users: self.users.clone() }))
    }

    fn attach_orb(&self) {
        UnixTransport.attach_orb();
    }

    fn detach_orb(&self) {
        UnixTransport.detach_orb();
    }
}

impl Listener for AllowedListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        loop {
            let stream = self.inner.accept()?;
            match stream.peer() {
                Peer::Process { uid, .. } if self.users.contains(uid) => return Ok(stream),
                peer => REFUSED.say(&format!("refused control to {peer}, which --allow-control does not name")),
            }
        }
    }

    fn set_properties(&self, properties: &ConnectionProperties) -> io::Result<()> {
        self.inner.set_properties(properties)
    }

    fn readiness_descriptor(&self) -> BorrowedFd<'_> {
        self.inner.readiness_descriptor()
    }

    fn local_endpoint(&self) -> &Endpoint {
        self.inner.local_endpoint()
    }
}

struct Refusing;

impl Refusing {
    fn refuse() -> SystemException {
        REFUSED.say("refused control to a client that did not come over the Unix socket of --allow-control");
        let why = "operations on the server itself go over the Unix socket of --allow-control";
        SystemException::new(Kind::NoPermission, 0, Completion::No).with_message(why)
    }
}

impl Control for Refusing {
    fn bind_all(&self, _: &[NameComponent], _: &[NewBinding], _: bool) -> Result<BindOutcomes, BindAllError> {
        Err(Self::refuse().into())
    }

    fn initial_context(&self) -> Result<Option<NamingContextRef>, SystemException> {
        Err(Self::refuse())
    }

    fn backup(&self, _: &str) -> Result<(), BackupError> {
        Err(Self::refuse().into())
    }

    fn shutdown(&self) -> Result<(), SystemException> {
        Err(Self::refuse())
    }
}

pub(super) fn refuse(orb: &Orb) -> Result<(), String> {
    let root = orb.root_poa();
    let refusing = root.activate(&Control::servant(Refusing)).map_err(|error| error.to_string())?;
    root.manager().activate().map_err(|error| error.to_string())?;
    orb.bind_corbaloc_key(CONTROL_OBJECT_KEY, &refusing).map_err(|error| error.to_string())
}

pub(super) fn serve(
    naming: &NamingService,
    path: &Path,
    users: Vec<u32>,
    shutdown: impl Fn() + Send + Sync + 'static,
) -> Result<Orb, String> {
    serve_objects(&[(&naming.control_servant(shutdown), CONTROL_OBJECT_KEY)], path, users)
}

/// Serves objects with these plain keys at a Unix socket for the processes of `users`, until the
/// returned ORB ends.
pub(crate) fn serve_objects(objects: &[(&Servant, &str)], path: &Path, users: Vec<u32>) -> Result<Orb, String> {
    let shown = path.display();
    let text = path.to_str().ok_or_else(|| format!("the path `{shown}` is not UTF-8"))?;
    let transports = Transports::new(vec![std::sync::Arc::new(AllowedUnix { users })]);
    let builder = Orb::builder().transports(transports).listen(format!("unix:{text}"));
    let orb = builder.build().map_err(|error| error.to_string())?;
    let root = orb.root_poa();
    for (servant, key) in objects {
        let control = root.activate(servant).map_err(|error| error.to_string())?;
        orb.bind_corbaloc_key(key, &control).map_err(|error| error.to_string())?;
    }
    // The server checks the user of each connection, so the mode may permit all users.
    fs::set_permissions(path, Permissions::from_mode(0o666))
        .map_err(|error| format!("the permissions of `{shown}` cannot be set: {error}"))?;
    root.manager().activate().map_err(|error| error.to_string())?;
    Ok(orb)
}

pub(super) fn object(orb: &Orb, path: &Path) -> Result<ControlRef, String> {
    object_at(orb, path, CONTROL_OBJECT_KEY)
}

pub(crate) fn object_at<R: Reference>(orb: &Orb, path: &Path, key: &str) -> Result<R, String> {
    let absolute = std::path::absolute(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let text = absolute.to_str().ok_or_else(|| format!("the path `{}` is not UTF-8", path.display()))?;
    let profile = TaggedProfile::encode(Version::GIOP_1_2, ProfileAddress::Uiop { path: text }, key.as_bytes(), &[]);
    let profile = profile.map_err(|error| format!("{error:?}"))?;
    let ior = Ior { type_id: R::REPOSITORY_ID.to_owned(), profiles: vec![profile] };
    let text = ior.to_text().map_err(|error| format!("{error:?}"))?;
    let object = orb.string_to_object(&text).map_err(|error| error.to_string())?;
    Ok(R::from_object(object.ok_or("the reference is nil")?))
}

/// Checks that `root` is the context in which the names of `bind_all` start.
pub(super) fn check_root(control: &ControlRef, root: &NamingContextRef) -> Result<(), String> {
    let initial = control.initial_context().map_err(|exception| explain(&exception))?;
    if initial.is_some_and(|initial| initial.as_object().is_equivalent(root.as_object())) {
        return Ok(());
    }
    Err("--at has to name the initial context of the server behind --control, and names another context".to_owned())
}

pub(crate) fn explain(exception: &SystemException) -> String {
    let has_connected = exception.detail().is_none_or(|detail| detail.phase != Some(corelane::CallPhase::Connect));
    match exception.kind() {
        Kind::CommFailure | Kind::Transient if has_connected => format!(
            "the server closed the connection ({exception}): it ended, or its --allow-control does not name the user {}",
            corelane_sys::process::effective_user_id()
        ),
        _ => exception.to_string(),
    }
}

pub(super) fn backup_message(error: BackupError) -> String {
    match error {
        BackupError::Failed(failed) => printable(&failed.reason),
        BackupError::System(exception) => explain(&exception),
    }
}

#[cfg(test)]
mod tests {
    use corelane_services::naming::corelane_naming::control::Failed;

    use super::*;

    #[test]
    fn reasons_of_a_server_have_escaped_control_characters() {
        let failed = || Failed { reason: "no\x1b[2J".to_owned() };
        assert_eq!(backup_message(BackupError::Failed(failed())), "no\\u{1b}[2J");
    }
}
