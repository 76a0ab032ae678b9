//! Receive threads: kernel threads that process the received packets of an interface, instead of
//! the receive context (threaded NAPI, Documentation/networking/napi.rst).

use std::io;

use corelane_sys::netlink::{Netlink, NetlinkFamily, add_attribute, find_attribute, read_u32_at};
use corelane_sys::thread::{self, CpuSet, Scheduling};

// include/uapi/linux/genetlink.h and netdev.h.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_PID: u16 = 4;
/// Size of `struct genlmsghdr` in bytes.
const HEADER: usize = 4;

/// A NAPI instance of an interface: usually one receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReceiveInstance {
    id: u32,
    /// True if a kernel thread runs the instance, false if the receive context does.
    has_thread: bool,
}

/// Lists the NAPI instances of an interface, which needs Linux 6.8. An interface without instances
/// cannot have receive threads.
pub(crate) fn instances(interface: u32) -> io::Result<Vec<ReceiveInstance>> {
    let netlink = Netlink::open(NetlinkFamily::Generic)?;
    let mut body = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
    add_attribute(&mut body, CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let found = netlink.query(GENL_ID_CTRL, false, &body)?;
    let family = found.first().and_then(|body| find_attribute(body.get(HEADER..)?, CTRL_ATTR_FAMILY_ID));
    let family = family.and_then(<[u8]>::first_chunk).ok_or(io::ErrorKind::Unsupported)?;
    let mut body = vec![NETDEV_CMD_NAPI_GET, 1, 0, 0];
    add_attribute(&mut body, NETDEV_A_NAPI_IFINDEX, &interface.to_ne_bytes());
    let instances = netlink.query(u16::from_ne_bytes(*family), true, &body)?.into_iter().filter_map(|body| {
        let of = |kind| read_u32_at(find_attribute(body.get(HEADER..)?, kind)?, 0);
        Some(ReceiveInstance { id: of(NETDEV_A_NAPI_ID)?, has_thread: of(NETDEV_A_NAPI_PID).is_some() })
    });
    Ok(instances.collect())
}

impl ReceiveInstance {
    /// Gives the thread of the instance a scheduling class with a priority and, unless `core` is
    /// `None`, a core. Returns the thread's name. `name` is the name of the interface.
    pub(crate) fn schedule(self, name: &str, scheduling: Scheduling, core: Option<usize>) -> io::Result<String> {
        let missing = |text: String| io::Error::new(io::ErrorKind::NotFound, text);
        if !self.has_thread {
            return Err(missing(format!("instance {} has no thread", self.id)));
        }
        // The numbers of instances are unique in the kernel, so the thread's name is unique too.
        let wanted = format!("napi/{name}-{}", self.id);
        let hidden = || missing(format!("the process does not see the thread {wanted}"));
        let thread = thread::find_kernel_thread(&wanted)?.ok_or_else(hidden)?;
        if let Some(core) = core {
            thread::set_affinity(Some(thread), &CpuSet::one(core))?;
        }
        if thread::scheduling(Some(thread))? != scheduling {
            thread::set_scheduling(Some(thread), scheduling)?;
        }
        Ok(wanted)
    }

    /// Returns the scheduling class and the priority of the thread of the instance.
    #[cfg(test)]
    pub(crate) fn found(self, name: &str) -> io::Result<Scheduling> {
        let thread = thread::find_kernel_thread(&format!("napi/{name}-{}", self.id))?;
        thread::scheduling(Some(thread.ok_or(io::ErrorKind::NotFound)?))
    }
}
