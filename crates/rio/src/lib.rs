//! Real-time I/O: packets keep their priority from the network driver to the lane and back.
//!
//! Without this crate, packets wait in the order of their arrival until a lane reads them, whatever
//! their priority. This crate sorts frames in the driver, so that each stream has a queue and a
//! kernel thread, and can have a budget. (Kuhns, Schmidt and Levine, "The Design and Performance of
//! a Real-time I/O Subsystem", RTAS 1999.)
//!
//! | module | content | pure |
//! |---|---|---|
//! | [`admission`] | the decision whether a stream can get its guarantees | yes |
//! | [`budget`] | the packets and bytes of a stream that are processed in each period | yes |
//! | [`frame`] | parsing of frames that may belong to a stream: Ethernet, VLAN, IPv4, IPv6, TCP | yes |
//! | [`memory`] | the maximum number of bytes that a stream occupies | yes |
//! | [`feature_level`] | the features in use, and their changes while the system runs | yes |
//! | [`examination`] | the features that an interface has, and why not more | no |
//! | [`steering`] | a frame's stream and queue: tables, XDP program, kernel maps | except maps |
//! | `processing_cost` | the measurement of the time that packets need | no |
//! | `receive_threads` | the kernel threads that process received packets | no |
//! | `stream_admission` | the streams of a transport as requests for admission | yes |
//! | [`status`] | the live state of transports, for other processes | no |
//! | `transmit_classes` | the queueing discipline with a transmit class for each stream | no |
//! | `transport`, `connection` | [`RioTransport`]: TCP whose connections belong to streams | no |
//! | `turns` | the bytes of a period, divided among the connections that wait for them | yes |
//! | `rate` | caps in packets per second | yes |
//! | `byte_budget` | the bytes that the connections of a stream receive in each period | no |
//! | `kernel_priorities` | receive threads and transmit classes of an interface, with a journal of the earlier settings | no |
//! | `level_control` | the steps of a feature level, done on this machine | no |
//! | `interface_settings` | the settings of interfaces in sysfs | no |
//! | `interface_steering` | the program on an interface, with this process's streams | no |
//! | `packet_rings` | the AF_XDP rings of an interface, and the TUN device into which their packets go | no |
//! | `protocol_thread` | the thread that processes the packets of a stream with a budget in packets | no |
//! | `stream_steering` | the entries of a stream in the steering tables, which may exist later than the stream | no |
//!
//! Pure modules have no clock, thread, socket or descriptor: time and bytes are arguments.
#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_lossless
)]

pub mod admission;
pub mod budget;
mod byte_budget;
mod config;
mod connection;
pub mod examination;
pub mod feature_level;
pub mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod interface_settings;
mod interface_steering;
mod kernel_priorities;
mod level_control;
pub mod memory;
mod packet_rings;
mod processing_cost;
mod protocol_thread;
mod rate;
mod receive_threads;
#[cfg(test)]
mod simulation;
pub mod status;
pub mod steering;
mod stream_admission;
mod stream_steering;
mod transmit_classes;
mod transport;
mod turns;

pub use config::{LevelChangeHandler, RioConfig};
pub use kernel_priorities::restore_interface;
pub use protocol_thread::PacketCounts;
pub use stream_admission::{StreamAdmission, StreamNotAdmitted};
pub use transport::{RioTransport, StreamStatus};
pub use turns::BudgetCounts;
