//! Links between XDP programs and interfaces. A link ends at the latest when its last descriptor is
//! closed, even if the process is killed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::program::XDP_ATTACH;
use super::{Command, InfoAttributes, LoadedProgram, address, enter, own};

/// Point in the receive path at which an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AttachMode {
    /// In the driver, or in the kernel's generic path if the driver cannot run the program.
    Any = 0,
    /// In the generic path, after the kernel has made a socket buffer of the frame.
    Generic = 1 << 1,
    /// In the driver. Attaching fails if the driver cannot run the program.
    Driver = 1 << 2,
}

/// An XDP program on an interface. Dropping the link detaches the program.
#[derive(Debug)]
pub struct XdpLink(OwnedFd);

#[repr(C)]
struct LinkAttributes {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct UpdateAttributes {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// The beginning of `struct bpf_link_info` for an XDP link.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    link_type: u32,
    id: u32,
    prog_id: u32,
    padding: u32,
    ifindex: u32,
    rest: u32,
}

impl XdpLink {
    /// Attaches `program` to the interface with this index.
    ///
    /// # Errors
    /// `ResourceBusy` or `AlreadyExists` if another program is attached; any other error that the
    /// kernel returns.
    pub fn attach(program: &LoadedProgram, interface: u32, mode: AttachMode) -> io::Result<Self> {
        let mut attributes = LinkAttributes {
            prog_fd: program.as_fd().as_raw_fd().cast_unsigned(),
            target_ifindex: interface,
            attach_type: XDP_ATTACH,
            flags: mode as u32,
        };
        // SAFETY: the attributes belong to the command and hold no addresses.
        let fd = unsafe { enter(Command::LinkCreate, &mut attributes) }?;
        // SAFETY: the kernel has just returned the descriptor.
        Ok(Self(unsafe { own(fd) }))
    }

    /// Replaces the XDP program atomically: the old or the new XDP program processes each frame.
    ///
    /// # Errors
    /// `ENOLINK` if the link has ended; any other error that the kernel returns.
    pub fn replace(&self, program: &LoadedProgram) -> io::Result<()> {
        let mut attributes = UpdateAttributes {
            link_fd: self.0.as_raw_fd().cast_unsigned(),
            new_prog_fd: program.as_fd().as_raw_fd().cast_unsigned(),
            flags: 0,
            old_prog_fd: 0,
        };
        // SAFETY: the attributes belong to the command and hold no addresses.
        unsafe { enter(Command::LinkUpdate, &mut attributes) }.map(drop)
    }

    /// Returns the index of the interface; `None` if the interface no longer exists or a process
    /// has detached the link.
    ///
    /// # Errors
    /// Any error that the kernel returns.
    pub fn interface(&self) -> io::Result<Option<u32>> {
        let mut info = LinkInfo::default();
        let mut attributes = InfoAttributes {
            bpf_fd: self.0.as_raw_fd().cast_unsigned(),
            info_len: u32::try_from(size_of::<LinkInfo>()).unwrap_or(0),
            info: address(&raw mut info),
        };
        // SAFETY: the attributes belong to the command; the kernel writes at most `info_len`
        // bytes into `info`, which lives through the call and consists of integers.
        unsafe { enter(Command::ObjectInfo, &mut attributes) }?;
        Ok((info.ifindex != 0).then_some(info.ifindex))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Assembler, Register, XdpAction, load, unavailable_reason};
    use super::*;
    use crate::process;

    fn verdict(action: i32) -> LoadedProgram {
        let mut asm = Assembler::new();
        asm.set(Register::R0, action).exit();
        load("verdict", &asm.finish().unwrap(), &[]).unwrap()
    }

    #[test]
    fn a_link_lasts_as_long_as_its_descriptor() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        if let Some(name) = process::missing_namespace_capability() {
            return println!("not run: the process lacks {name}");
        }
        let thread = std::thread::spawn(|| {
            process::enter_new_network_namespace().unwrap();
            let (pass, other) = (verdict(XdpAction::PASS), verdict(XdpAction::DROP));
            let link = XdpLink::attach(&pass, 1, AttachMode::Any).unwrap();
            assert_eq!(link.interface().unwrap(), Some(1));
            let taken = XdpLink::attach(&other, 1, AttachMode::Any).unwrap_err();
            assert!(matches!(taken.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)), "{taken}");
            link.replace(&other).unwrap();
            drop(link);
            XdpLink::attach(&other, 1, AttachMode::Any).unwrap();
            assert!(XdpLink::attach(&pass, 1, AttachMode::Driver).is_err());
            assert!(XdpLink::attach(&pass, 0x7fff_ffff, AttachMode::Any).is_err());
        });
        thread.join().unwrap();
    }
}
