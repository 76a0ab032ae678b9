//! Programs with a limited lifetime, whose output is written to files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use corelane_sys::lock::{LockScope, Mutex, MutexGuard};

const LOOK: Duration = Duration::from_millis(10);

/// Maximum time until a server has published its reference. A Java virtual machine starts slowly
/// when the cores are busy.
const START: Duration = Duration::from_secs(60);

/// Maximum time until a server ends after its shutdown operation.
const SHUTDOWN: Duration = Duration::from_secs(60);

/// Time after which a server whose input has ended is killed.
const END: Duration = Duration::from_secs(15);

/// On the first call, builds the program `corelane` with Cargo in the target folder. Returns the
/// path of the program.
///
/// # Panics
///
/// If it does not build.
pub fn corelane(target: &Path) -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("corelane-cli", target).join("corelane"))
}

/// On the first call, builds the bridge to NATS, which is a workspace of its own, with Cargo in the
/// folder `nats` of the target folder. Returns the path of the program.
///
/// # Panics
///
/// If it does not build.
pub fn nats_bridge(target: &Path) -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bridges/nats/Cargo.toml");
        let target = target.join("nats");
        let mut build = cargo();
        build.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(manifest).arg("--target-dir").arg(&target);
        assert!(build.status().is_ok_and(|status| status.success()), "the bridge to NATS is not built");
        target.join("debug").join("corelane-nats")
    })
}

/// On the first call, builds the programs of the guides with Cargo in the target folder. Returns
/// the folder of the programs.
///
/// # Panics
///
/// If they do not build.
pub fn guides(target: &Path) -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| build("corelane-example-guides", target))
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn build(package: &str, target: &Path) -> PathBuf {
    let mut build = cargo();
    build.args(["build", "--quiet", "--locked", "--bins", "--package", package, "--target-dir"]).arg(target);
    let is_built = build.status().is_ok_and(|status| status.success());
    assert!(is_built, "the programs of {package} are not built");
    target.join("debug")
}

/// A server process that has published its reference.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
    reference: PathBuf,
}

impl Server {
    /// Starts a server and waits until it has written its reference to `folder/server.ior`. Appends
    /// `--ior FILE --until-eof` to the arguments of the command.
    ///
    /// # Errors
    ///
    /// The program is missing, ends early or publishes no reference in time.
    pub fn start(mut command: Command, folder: &Path) -> Result<Self, String> {
        let reference = folder.join("server.ior");
        let log = folder.join("server.log");
        remove(&reference)?;
        command.arg("--ior").arg(&reference).arg("--until-eof").stdin(Stdio::piped());
        let child = spawn(command, &log, &log)?;
        let mut server = Self { child, log, reference };
        let deadline = Instant::now() + START;
        while !server.reference.exists() {
            if let Some(status) = server.ended()? {
                return Err(format!("the server ended with {status} before it was ready\n{}", server.output()));
            }
            if Instant::now() > deadline {
                return Err(format!("the server published no reference in {START:?}\n{}", server.output()));
            }
            thread::sleep(LOOK);
        }
        Ok(server)
    }

    /// Returns the file with the server's stringified reference.
    pub fn reference(&self) -> &Path {
        &self.reference
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output of the server so far.
    pub fn output(&self) -> String {
        read(&self.log)
    }

    /// Waits until the server ends. A client must have called its shutdown operation.
    ///
    /// # Errors
    ///
    /// The server does not end in time or ends without success.
    pub fn wait_for_exit(mut self) -> Result<(), String> {
        match wait(&mut self.child, SHUTDOWN)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("the server ended with {status}\n{}", self.output())),
            None => {
                Err(format!("the server did not end in {SHUTDOWN:?} after its shutdown operation\n{}", self.output()))
            }
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child.try_wait().map_err(|error| format!("waiting for the server: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if matches!(wait(&mut self.child, END), Ok(Some(_))) {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A finished program's result.
#[derive(Debug)]
pub struct ProgramOutput {
    /// The program's exit status.
    pub status: ExitStatus,
    /// The program's output: standard output and error from [`run`], and standard output only from
    /// [`run_with_separate_errors`].
    pub output: String,
}

/// Runs a program, for at most `life`. Its output is written to `folder/NAME.log`.
///
/// # Errors
///
/// The program is missing or did not end in time.
pub fn run(command: Command, name: &str, folder: &Path, life: Duration) -> Result<ProgramOutput, String> {
    let log = folder.join(format!("{name}.log"));
    run_into(command, name, &log, &log, life)
}

/// Runs a program as [`run`] does, but writes the error output to `folder/NAME.errors` and does not
/// return it.
///
/// # Errors
///
/// The errors of [`run`].
pub fn run_with_separate_errors(
    command: Command,
    name: &str,
    folder: &Path,
    life: Duration,
) -> Result<ProgramOutput, String> {
    let errors = folder.join(format!("{name}.errors"));
    run_into(command, name, &folder.join(format!("{name}.log")), &errors, life)
}

fn run_into(
    mut command: Command,
    name: &str,
    log: &Path,
    errors: &Path,
    life: Duration,
) -> Result<ProgramOutput, String> {
    command.stdin(Stdio::null());
    let mut child = spawn(command, log, errors)?;
    if let Some(status) = wait(&mut child, life)? {
        return Ok(ProgramOutput { status, output: read(log) });
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(format!("the {name} did not end in {life:?} and was killed\n{}", read(log)))
}

/// Prevents the start of programs until the guard is dropped. A new process has copies of all
/// descriptors until it executes its program, so that a closed port may remain in use.
pub(crate) fn nothing_starts() -> MutexGuard<'static, ()> {
    static STARTING: Mutex<()> = Mutex::new("programs that are being started", LockScope::Orb, ());
    STARTING.lock()
}

/// Starts a program. When this function returns, the new process runs the program.
pub(crate) fn begin(command: &mut Command) -> Result<Child, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let _one_at_a_time = nothing_starts();
    command.spawn().map_err(|error| format!("`{program}` could not be started: {error}"))
}

fn spawn(mut command: Command, log: &Path, errors: &Path) -> Result<Child, String> {
    let shown = |error| format!("{}: {error}", log.display());
    let file = File::create(log).map_err(shown)?;
    let second = if log == errors { file.try_clone() } else { File::create(errors) }.map_err(shown)?;
    begin(command.stdout(file).stderr(second))
}

pub(crate) fn wait(child: &mut Child, life: Duration) -> Result<Option<ExitStatus>, String> {
    let deadline = Instant::now() + life;
    loop {
        let status = child.try_wait().map_err(|error| format!("waiting for a program: {error}"))?;
        if status.is_some() || Instant::now() > deadline {
            return Ok(status);
        }
        thread::sleep(LOOK);
    }
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", path.display())),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> String {
    fs::read(path).map_or_else(|error| error.to_string(), |octets| String::from_utf8_lossy(&octets).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("corelane-interop-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]);
        command
    }

    #[test]
    fn start_waits_until_the_server_is_ready_and_drop_ends_the_server() {
        let server = Server::start(shell("sleep 0.1; echo up; echo IOR:00 >\"$2\"; cat"), &folder("server")).unwrap();
        assert_eq!(fs::read_to_string(server.reference()).unwrap(), "IOR:00\n");
        assert_eq!(server.output(), "up\n");
        let entry = PathBuf::from(format!("/proc/{}", server.id()));
        assert!(entry.exists());
        drop(server);
        assert!(!entry.exists());
    }

    #[test]
    fn error_of_a_server_that_ends_early_contains_its_output() {
        let trouble = Server::start(shell("echo no port; exit 3"), &folder("early")).unwrap_err();
        assert!(trouble.contains("no port") && trouble.contains("exit status: 3"), "{trouble}");
    }

    #[test]
    fn server_that_ends_by_itself_must_succeed() {
        let script = |status| shell(&format!("echo IOR:00 >\"$2\"; exit {status}"));
        Server::start(script(0), &folder("good")).unwrap().wait_for_exit().unwrap();
        let trouble = Server::start(script(5), &folder("bad")).and_then(Server::wait_for_exit).unwrap_err();
        assert!(trouble.contains("exit status: 5"), "{trouble}");
    }

    #[test]
    fn program_runs_to_its_end_or_is_killed() {
        let second = Duration::from_secs(20);
        let finished = run(shell("echo out; echo err >&2; exit 1"), "client", &folder("run"), second).unwrap();
        assert_eq!((finished.status.code(), finished.output.as_str()), (Some(1), "out\nerr\n"));
        let trouble =
            run(shell("echo slow; exec sleep 600"), "client", &folder("slow"), Duration::from_secs(2)).unwrap_err();
        assert!(trouble.contains("killed") && trouble.contains("slow"), "{trouble}");
    }

    #[test]
    fn error_names_a_missing_program() {
        let trouble = Server::start(Command::new("no-such-program-here"), &folder("missing")).unwrap_err();
        assert!(trouble.contains("`no-such-program-here` could not be started"), "{trouble}");
    }
}
