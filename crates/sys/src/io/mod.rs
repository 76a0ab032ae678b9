//! Input and output: system calls, descriptors, sockets, BPF programs.

pub mod bpf;
pub mod deferred_close;
pub mod epoll;
pub mod eventfd;
pub mod interface;
pub mod netlink;
pub mod poll;
pub mod socket;
pub(crate) mod syscall;
pub mod tun;
pub mod xdp;
