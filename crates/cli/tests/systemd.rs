//! Runs the unit docs/systemd/corelane-naming.service as systemd would, and verifies it with
//! `systemd-analyze`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const UNIT: &str = "../../docs/systemd/corelane-naming.service";
const INSTALLED: &str = "/usr/local/bin/corelane";
const OPTIONAL: char = '-';

fn unit() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(UNIT)).expect("the unit is there")
}

fn service(unit: &str) -> BTreeMap<&str, &str> {
    let (_, section) = unit.split_once("\n[Service]\n").expect("a section for the service");
    let section = section.split("\n[").next().unwrap_or_default();
    let lines = section.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once('=').expect("lines are NAME=VALUE")).collect()
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

struct Service(Child);

impl Service {
    fn stop(mut self) -> bool {
        let sent = Command::new("kill").arg(self.0.id().to_string()).status().expect("kill starts");
        sent.success() && self.0.wait().expect("the service ends").success()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(settings: &BTreeMap<&str, &str>, folder: &Path, notify: &Path) -> Service {
    let mut command = settings["ExecStart"].to_owned();
    let mut environment = vec![("NOTIFY_SOCKET", notify.to_path_buf())];
    for (setting, variable) in [("StateDirectory", "STATE_DIRECTORY"), ("RuntimeDirectory", "RUNTIME_DIRECTORY")] {
        let path = folder.join(variable).join(settings[setting]);
        fs::create_dir_all(&path).expect("a folder for the service");
        command = command.replace(&format!("${{{variable}}}"), &path.to_string_lossy());
        environment.push((variable, path));
    }
    assert!(!command.contains(['$', '%', '"']), "the test does not expand all of {command}");
    let mut words = command.split(' ');
    assert_eq!(words.next(), Some(INSTALLED));
    // Sets the address in the environment, as the unit's EnvironmentFile can.
    assert!(settings["EnvironmentFile"].starts_with(OPTIONAL));
    environment.push(("CORELANE_NAMING_SERVE_LISTEN", PathBuf::from("tcp:127.0.0.1:0")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(words).env_clear().envs(environment).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    Service(command.spawn().expect("the program starts"))
}

fn naming(reference: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    let (subcommand, rest) = words.split_first().expect("a subcommand");
    command.args(["naming", subcommand, "--at", &format!("@{}", reference.display())]).args(rest);
    let output = command.output().expect("the program starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn unit_of_the_name_server_reports_its_start_and_ends_on_sigterm() {
    let unit = unit();
    let settings = service(&unit);
    assert_eq!(settings["Type"], "notify");
    let folder = folder("systemd");
    let notify = std::env::temp_dir().join(format!("corelane-notify-{}", std::process::id()));
    let _ = fs::remove_file(&notify);
    let socket = UnixDatagram::bind(&notify).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let receive = || {
        let mut state = [0; 64];
        let length = socket.recv(&mut state).expect("the service notifies");
        String::from_utf8_lossy(&state[..length]).into_owned()
    };
    let reference = folder.join("RUNTIME_DIRECTORY").join(settings["RuntimeDirectory"]).join("names.ior");
    // The second start shows the name of the first only if the store is in the folder that systemd
    // preserves.
    for expected in ["", "shop/\n"] {
        let service = start(&settings, &folder, &notify);
        assert_eq!(receive(), "READY=1\n");
        assert_eq!(naming(&reference, &["list"]), (Some(0), expected.to_owned()));
        if expected.is_empty() {
            assert_eq!(naming(&reference, &["new", "shop"]).0, Some(0));
        }
        assert!(service.stop(), "SIGTERM does not end the service cleanly");
        assert_eq!(receive(), "STOPPING=1\n");
    }
    let _ = fs::remove_file(&notify);
}

/// Verifies the unit. Does nothing if `systemd-analyze` is not installed.
#[test]
fn systemd_accepts_the_unit() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        eprintln!("systemd-analyze is not installed: the unit is not verified");
        return;
    };
    assert!(version.status.success());
    let verify = |name: &str, unit: &str| {
        let file = folder(name).join("corelane-naming.service");
        fs::write(&file, unit.replace(INSTALLED, env!("CARGO_BIN_EXE_corelane"))).expect("written");
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output();
        let output = output.expect("systemd-analyze starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Messages about other units of the machine are ignored.
        said.lines().filter(|line| line.contains("corelane-naming")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(verify("systemd-verify", &unit()), "");
    assert_ne!(verify("systemd-verify-wrong", &unit().replace("Restart=", "Restarts=")), "", "faults are reported");
}
