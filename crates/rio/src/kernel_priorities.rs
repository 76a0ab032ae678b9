//! The settings of [`FeatureLevel::KernelPriorities`](crate::feature_level::FeatureLevel) on an
//! interface: receive threads with a priority, and transmit classes.
//!
//! The settings outlive a killed process. So the process that owns them holds a lock on a journal,
//! which has the earlier settings. If a journal is not locked, its owner has ended, and the next
//! owner restores the earlier settings first.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::netlink::{Netlink, NetlinkFamily};
use corelane_sys::thread::Scheduling;
use corelane_sys::{interface, process};

use crate::interface_settings::InterfaceSettings;
use crate::receive_threads::{self, ReceiveInstance};
use crate::transmit_classes::{self, RootDiscipline, class_of_stream, class_priority};

/// First line of a journal.
const FORMAT: &str = "corelane-rio 1";

/// An open stream, which gets a transmit class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrioritizedStream {
    pub(crate) number: u32,
    pub(crate) native_priority: Option<u8>,
}

/// The ownership of the settings of an interface. Dropping the value restores the earlier settings.
#[derive(Debug)]
pub(crate) struct KernelPriorities {
    name: String,
    index: u32,
    /// The settings in sysfs, or the reason why sysfs cannot be used. Without sysfs, the interface
    /// gets no receive threads.
    settings: Result<InterfaceSettings, String>,
    netlink: Netlink,
    journal: File,
    path: PathBuf,
    process: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The NAPI instances and the scheduling of their threads at the last attempt to schedule them;
    /// `None` without receive threads.
    receive: Option<(Vec<ReceiveInstance>, Scheduling)>,
    /// The first error of the last attempt to schedule the receive threads.
    lack: Option<String>,
    /// The transmit classes of the streams with their priorities; `None` if the interface has no
    /// transmit classes.
    classes: Option<BTreeMap<u32, u8>>,
    /// Maximum rate of the transmit class of best effort in bytes per second.
    ceiling: Option<u64>,
}

impl KernelPriorities {
    /// Takes the ownership of the settings of `name`, and restores what a killed owner has left.
    ///
    /// # Errors
    /// If the interface does not exist, if another process has the ownership, or if netlink or the
    /// journal cannot be opened.
    pub(crate) fn take(name: &str, folder: &Path) -> Result<Self, String> {
        Self::restore_and_take(name, folder).map(|(taken, _)| taken)
    }

    /// As [`take`](Self::take), and returns the names of the restored settings.
    pub(crate) fn restore_and_take(name: &str, folder: &Path) -> Result<(Self, Vec<&'static str>), String> {
        let of = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let index = interface::index(name).map_err(of("the interface"))?;
        let settings = InterfaceSettings::open().map_err(|error| error.to_string());
        let netlink = Netlink::open(NetlinkFamily::Route).map_err(of("netlink"))?;
        let path = journal_path(index, folder).map_err(of("the network namespace"))?;
        let journal = lock(folder, &path).map_err(|error| match error {
            TryLockError::WouldBlock => format!("another process has the priorities of {name}"),
            TryLockError::Error(error) => format!("the journal {} cannot be written: {error}", path.display()),
        })?;
        let state = Mutex::new("kernel priorities", LockScope::Orb, State::default());
        let name = name.to_owned();
        let mut taken = Self { name, index, settings, netlink, journal, path, process: process::id(), state };
        let restored = taken.restore_earlier();
        Ok((taken, restored))
    }

    /// Makes kernel threads, in place of the receive context, process the received packets.
    ///
    /// # Errors
    /// If the interface can have no receive threads, if it has receive threads of another owner,
    /// which are left unchanged, or if the setting or the journal cannot be written.
    pub(crate) fn start_receive_threads(&self) -> Result<(), String> {
        let setting = self.settings.as_ref().map_err(String::clone)?.of(&self.name).join("threaded");
        let earlier = fs::read_to_string(&setting).map_err(|error| format!("{}: {error}", setting.display()))?;
        if receive_threads::instances(self.index).map_err(|error| error.to_string())?.is_empty() {
            return Err(NO_RECEIVE_THREADS.to_owned());
        }
        if earlier.trim() != "0" {
            return Err(FOREIGN_RECEIVE_THREADS.to_owned());
        }
        let journal = format!("{FORMAT}\nthreaded {}\n", earlier.trim());
        self.write(&journal).map_err(|error| format!("the journal cannot be written: {error}"))?;
        fs::write(&setting, "1").map_err(|error| format!("the driver refuses receive threads: {error}"))?;
        self.state.lock().receive = Some((Vec::new(), Scheduling::Other));
        Ok(())
    }

    /// Puts the transmit classes on the interface. `ceiling` is the maximum rate of best effort in
    /// bytes per second.
    ///
    /// # Errors
    /// If the interface has a queueing discipline of another owner, or if the kernel refuses the
    /// classes.
    pub(crate) fn start_transmit_classes(&self, ceiling: Option<u64>) -> Result<(), String> {
        self.create_classes(ceiling)?;
        let mut state = self.state.lock();
        (state.classes, state.ceiling) = (Some(BTreeMap::new()), ceiling);
        Ok(())
    }

    fn create_classes(&self, ceiling: Option<u64>) -> Result<(), String> {
        match transmit_classes::root_discipline(&self.netlink, self.index) {
            Ok(RootDiscipline::Foreign(found)) => {
                return Err(format!("{} has the queueing discipline {found} of another owner", self.name));
            }
            Ok(RootDiscipline::Default) => {}
            Ok(RootDiscipline::Ours) => {
                // If the removal fails, the creation fails as well and says why.
                let _ = transmit_classes::remove(&self.netlink, self.index);
            }
            Err(error) => return Err(format!("the queueing discipline cannot be read: {error}")),
        }
        transmit_classes::create(&self.netlink, self.index, ceiling)
            .map_err(|error| format!("the kernel refuses transmit classes: {error}"))
    }

    /// Returns true if the interface with the name is still the one whose settings this value owns.
    /// An interface that was removed and made again has another number.
    pub(crate) fn is_current(&self) -> bool {
        interface::index(&self.name).is_ok_and(|index| index == self.index)
    }

    /// Gives each stream its transmit class, and the receive threads the priority of the most
    /// urgent stream. Changes only what differs.
    pub(crate) fn follow(&self, streams: &[PrioritizedStream], core: Option<usize>) {
        let mut state = self.state.lock();
        let State { receive, lack, classes, ceiling } = &mut *state;
        if classes.is_some() {
            // Without an answer of the kernel, nothing is changed until the next call.
            let Ok(root) = transmit_classes::root_discipline(&self.netlink, self.index) else { return };
            if root != RootDiscipline::Ours {
                // Another process has removed the transmit classes. If they cannot be made again,
                // this value makes no further attempt.
                *classes = self.create_classes(*ceiling).is_ok().then(BTreeMap::new);
            }
        }
        if let Some(classes) = classes {
            let wanted: BTreeMap<u32, u8> = streams
                .iter()
                .map(|stream| (class_of_stream(stream.number), class_priority(stream.native_priority)))
                .collect();
            // Removing a transmit class discards the packets that still wait in it.
            classes.retain(|class, _| {
                wanted.contains_key(class)
                    || transmit_classes::remove_stream(&self.netlink, self.index, *class).is_err()
            });
            for (class, priority) in wanted {
                if classes.get(&class) != Some(&priority)
                    && transmit_classes::add_stream(&self.netlink, self.index, class, priority).is_ok()
                {
                    classes.insert(class, priority);
                }
            }
        }
        if let Some((known, scheduling)) = receive {
            let most_urgent = streams.iter().filter_map(|stream| stream.native_priority).max();
            let wanted = most_urgent.map_or(Scheduling::Other, Scheduling::Fifo);
            let Ok(instances) = receive_threads::instances(self.index) else { return };
            if *known != instances || *scheduling != wanted || lack.is_some() {
                let schedule = |instance: &ReceiveInstance| instance.schedule(&self.name, wanted, core).err();
                // An error with one thread does not prevent the scheduling of the others.
                let failures: Vec<io::Error> = instances.iter().filter_map(schedule).collect();
                *lack = failures.first().map(ToString::to_string);
                (*known, *scheduling) = (instances, wanted);
            }
        }
    }

    pub(crate) fn journal(&self) -> &Path {
        &self.path
    }

    /// Returns the first error of the last attempt to schedule the receive threads; `None` if there
    /// was no error.
    pub(crate) fn lack(&self) -> Option<String> {
        self.state.lock().lack.clone()
    }

    /// Returns two results: whether this value has started receive threads, and whether the
    /// interface has the transmit classes of this value.
    pub(crate) fn features(&self) -> (bool, bool) {
        let state = self.state.lock();
        (state.receive.is_some(), state.classes.is_some())
    }

    fn write(&self, text: &str) -> io::Result<()> {
        self.journal.set_len(0)?;
        io::Seek::seek(&mut &self.journal, io::SeekFrom::Start(0))?;
        (&self.journal).write_all(text.as_bytes())?;
        self.journal.sync_data()
    }

    fn restore_earlier(&mut self) -> Vec<&'static str> {
        let mut restored = Vec::new();
        if transmit_classes::root_discipline(&self.netlink, self.index).is_ok_and(|root| root == RootDiscipline::Ours)
            && transmit_classes::remove(&self.netlink, self.index).is_ok()
        {
            restored.push("transmit classes");
        }
        let mut text = String::new();
        // An incomplete journal has nothing to restore, because its owner ended before it changed
        // the setting.
        let _ = (&self.journal).take(4_096).read_to_string(&mut text);
        let mut lines = text.lines();
        if lines.next() == Some(FORMAT)
            && let Some(earlier @ ("0" | "1")) = lines.find_map(|line| line.strip_prefix("threaded "))
            && let Ok(settings) = &self.settings
        {
            let setting = settings.of(&self.name).join("threaded");
            let is_changed = fs::read_to_string(&setting).is_ok_and(|found| found.trim() != earlier);
            if is_changed && fs::write(&setting, earlier).is_ok() {
                restored.push("receive threads");
            }
        }
        restored
    }
}

impl Drop for KernelPriorities {
    fn drop(&mut self) {
        // The settings belong to the process that made them, not to its forked children.
        if self.process != process::id() {
            return;
        }
        let _ = io::Seek::seek(&mut &self.journal, io::SeekFrom::Start(0));
        // A setting that cannot be restored, for example because the interface was removed, stays
        // as it is.
        let _ = self.restore_earlier();
        let _ = fs::remove_file(&self.path);
    }
}

/// The reason why an interface cannot have receive threads.
pub(crate) const NO_RECEIVE_THREADS: &str = "the interface does not receive by NAPI";

/// The reason why receive threads that real-time I/O has not started keep their scheduling and
/// their cores.
pub(crate) const FOREIGN_RECEIVE_THREADS: &str = "the interface has receive threads of another owner";

/// Time for which [`lock`] tries a locked journal again, because [`is_owned`] holds the lock for a
/// moment.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);

/// Makes the folder of journals if it does not exist.
///
/// # Errors
/// If the folder cannot be made, or if another user owns it or can write into it, because this user
/// could replace journals.
fn own_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != process::effective_user_id() || found.mode() & 0o022 != 0 {
        let reason = format!("another user owns the folder {} or can write into it", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(())
}

/// Opens and locks a journal. The owner of a journal removes the file when it ends, perhaps between
/// the opening and the locking. The locked file then has no name any more, and the function opens
/// the journal again.
///
/// A descriptor for reading is enough to lock a file, so no other user may open a journal.
fn lock(folder: &Path, path: &Path) -> Result<File, TryLockError> {
    own_folder(folder).map_err(TryLockError::Error)?;
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(0o600).custom_flags(process::O_NOFOLLOW);
    let deadline = Monotonic::now() + LOCK_PATIENCE;
    loop {
        let file = options.open(path).map_err(TryLockError::Error)?;
        if let Err(error) = file.try_lock() {
            if matches!(error, TryLockError::Error(_)) || deadline.is_past() {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let locked = file.metadata().map_err(TryLockError::Error)?.ino();
        if fs::metadata(path).is_ok_and(|named| named.ino() == locked) {
            return Ok(file);
        }
    }
}

/// Restores the settings of an interface that a killed process has left. Returns the names of the
/// restored settings.
///
/// `folder` is [`RioConfig::journal_folder`](crate::RioConfig::journal_folder) of the killed
/// process.
///
/// # Errors
/// If the interface does not exist, if a process owns its settings, or if the caller lacks the
/// privileges.
pub fn restore_interface(name: &str, folder: &Path) -> Result<Vec<&'static str>, String> {
    let index = interface::index(name).map_err(|error| error.to_string())?;
    let netlink = Netlink::open(NetlinkFamily::Route).map_err(|error| error.to_string())?;
    let has_classes = transmit_classes::root_discipline(&netlink, index).is_ok_and(|root| root == RootDiscipline::Ours);
    if !has_classes && !journal_path(index, folder).is_ok_and(|path| path.exists()) {
        return Ok(Vec::new());
    }
    KernelPriorities::restore_and_take(name, folder).map(|(_, restored)| restored)
}

/// Returns the path of the journal of an interface in the calling thread's network namespace.
fn journal_path(index: u32, folder: &Path) -> io::Result<PathBuf> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")?;
    Ok(folder.join(format!("{}-{index}", namespace.ino())))
}

/// Returns true if the interface has receive threads but no journal, so real-time I/O has not
/// started these threads.
pub(crate) fn has_foreign_receive_threads(name: &str, index: u32, settings: &InterfaceSettings, folder: &Path) -> bool {
    // A folder that is not readable can have a journal, so the function then returns false.
    let has_no_journal = journal_path(index, folder).and_then(fs::exists).is_ok_and(|exists| !exists);
    has_no_journal && fs::read_to_string(settings.of(name).join("threaded")).is_ok_and(|found| found.trim() != "0")
}

/// Returns true if a process owns the kernel priorities of the interface.
///
/// # Errors
/// If the journal cannot be read. Only root and the user of the owner can read the journal.
pub(crate) fn is_owned(index: u32, folder: &Path) -> io::Result<bool> {
    match journal_path(index, folder).and_then(File::open) {
        Ok(file) => match file.try_lock() {
            // A child process that another thread has just started keeps the file open until it
            // runs its program. Without this call, the lock could outlast `file`.
            Ok(()) => file.unlock().map(|()| false),
            Err(error) => Ok(matches!(error, TryLockError::WouldBlock)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "kernel_priorities/tests.rs"]
mod tests;
