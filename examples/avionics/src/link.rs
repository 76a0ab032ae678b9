//! A link between two network namespaces, for the option `--link`: the demo and the server are at
//! one end, the clients at the other.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// The server's end of the link.
pub(crate) const INTERFACE: &str = "rio0";
/// The server's address on the link.
pub(crate) const ADDRESS: &str = "10.99.0.1";

/// The clients' address on the link.
pub(crate) const CLIENTS_ADDRESS: &str = "10.99.0.2";

/// The link between the namespace of the server and that of the clients. The link ends when this
/// value is dropped, or when the process of the demo ends.
pub(crate) struct Link {
    /// A process that keeps the namespace of the clients.
    holder: Child,
    namespace: String,
}

impl Link {
    /// Makes a link. The calling process must be in a network namespace of its own
    /// ([`start_in_namespace`]).
    pub(crate) fn make() -> Result<Self> {
        let mut command = Command::new("unshare");
        // The process ends with its standard input, so it ends with this process.
        let holder = command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let id = holder.id();
        let link = Link { holder, namespace: format!("/proc/{id}/ns/net") };
        let deadline = Instant::now() + Duration::from_secs(10);
        while std::fs::read_link(&link.namespace)? == std::fs::read_link("/proc/self/ns/net")? {
            if Instant::now() > deadline {
                return Err("the namespace of the clients does not begin".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        ip(Command::new("ip"), "link set lo up")?;
        ip(Command::new("ip"), &format!("link add {INTERFACE} type veth peer name rio1"))?;
        ip(Command::new("ip"), &format!("link set rio1 netns {id}"))?;
        ip(Command::new("ip"), &format!("address add {ADDRESS}/24 dev {INTERFACE}"))?;
        ip(Command::new("ip"), &format!("link set {INTERFACE} up"))?;
        let address = format!("address add {CLIENTS_ADDRESS}/24 dev rio1");
        for words in ["link set lo up", &address, "link set rio1 up"] {
            ip(link.at_clients("ip"), words)?;
        }
        Ok(link)
    }

    /// Returns the command that starts a program at the clients' end.
    pub(crate) fn at_clients(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace)).arg("--").arg(program.as_ref());
        command
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn ip(mut command: Command, words: &str) -> Result<()> {
    let output = command.args(words.split(' ')).output().map_err(|error| format!("ip does not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim_end()).into())
}

/// Runs the demo again in a network namespace of its own. Returns true if it succeeded.
pub(crate) fn start_in_namespace(arguments: &[&str]) -> Result<bool> {
    let myself = std::env::current_exe()?;
    let mut command = Command::new("unshare");
    let status = command.arg("--net").arg(myself).arg("linked").args(arguments).status();
    Ok(status.map_err(|error| format!("unshare does not start: {error}"))?.success())
}
