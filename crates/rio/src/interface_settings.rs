//! The settings of the interfaces in sysfs.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

use corelane_sys::interface;

/// The folder of all interfaces in a sysfs that shows the network namespace of the thread that
/// opened it.
#[derive(Debug)]
pub(crate) struct InterfaceSettings {
    folder: PathBuf,
    /// Root of the sysfs, if it is not at `/sys`.
    _root: Option<OwnedFd>,
}

impl InterfaceSettings {
    /// Opens the settings in the calling thread's network namespace. With `CAP_SYS_ADMIN` the
    /// function opens a sysfs of this namespace. Without it, `/sys` counts as a sysfs of this
    /// namespace if all names and numbers of interfaces are equal.
    ///
    /// # Errors
    /// If `/sys` shows another network namespace, or if its folder of interfaces is not readable.
    pub(crate) fn open() -> io::Result<Self> {
        if let Ok(root) = interface::open_sysfs() {
            let folder = PathBuf::from(format!("/proc/self/fd/{}/class/net", root.as_raw_fd()));
            if folder.is_dir() {
                return Ok(Self { folder, _root: Some(root) });
            }
        }
        Self::at(Path::new("/sys/class/net"))
    }

    fn at(folder: &Path) -> io::Result<Self> {
        if shown_interfaces(folder)? != own_interfaces()? {
            return Err(io::Error::other(format!("{} shows another network namespace", folder.display())));
        }
        Ok(Self { folder: folder.to_owned(), _root: None })
    }

    /// Returns the path of the interface's folder, which can be used while `self` exists.
    pub(crate) fn of(&self, interface: &str) -> PathBuf {
        self.folder.join(interface)
    }
}

/// Returns the number of each interface that the folder shows.
fn shown_interfaces(folder: &Path) -> io::Result<BTreeMap<String, u32>> {
    let mut shown = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // With the bonding driver, the folder also has the file `bonding_masters`, which is not an
        // interface.
        let Ok(text) = fs::read_to_string(entry.path().join("ifindex")) else { continue };
        shown.insert(entry.file_name().to_string_lossy().into_owned(), text.trim().parse().unwrap_or(0));
    }
    Ok(shown)
}

/// Returns the number of each interface in the calling thread's network namespace.
fn own_interfaces() -> io::Result<BTreeMap<String, u32>> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
    let names = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names.map(|name| Ok((name.to_owned(), interface::index(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use corelane_sys::process;

    use super::*;

    /// Fails if one interface with an equal number counts as proof of the same namespace: the
    /// loopback interface has the number 1 in each namespace.
    #[test]
    fn settings_are_those_of_the_threads_own_network_namespace() {
        if let Some(name) = process::missing_namespace_capability() {
            return println!("not run: the process lacks {name}");
        }
        let run = || {
            process::enter_new_network_namespace().unwrap();
            let settings = InterfaceSettings::open().unwrap();
            assert_eq!(shown_interfaces(&settings.folder).unwrap(), own_interfaces().unwrap());
            assert_eq!(own_interfaces().unwrap().len(), 1);
            let state = || fs::read_to_string(settings.of("lo").join("operstate")).unwrap();
            assert_eq!(state().trim(), "down");
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn folder_with_other_interfaces_is_of_another_namespace() {
        let folder = std::env::temp_dir().join(format!("corelane-rio-settings-{}", std::process::id()));
        let add = |name: &str, number: u32| {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("ifindex"), format!("{number}\n")).unwrap();
        };
        own_interfaces().unwrap().iter().for_each(|(name, number)| add(name, *number));
        fs::write(folder.join("bonding_masters"), "").unwrap();
        assert!(InterfaceSettings::at(&folder).is_ok());
        add("other0", 4_000_000);
        let refusal = InterfaceSettings::at(&folder).unwrap_err().to_string();
        assert!(refusal.ends_with("shows another network namespace"), "{refusal}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
