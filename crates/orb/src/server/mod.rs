//! The server side: lanes with their listeners, connections and threads, and the dispatch
//! architectures. Messages go to the object adapter through the trait in `handler`.

mod acceptor;
pub(crate) mod admission;
mod architecture;
mod begun_replies;
mod burst_role;
pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod connection_lane;
mod core_groups;
mod draining;
pub(crate) mod final_messages;
mod group_waits;
pub(crate) mod handler;
pub(crate) mod idle_eviction;
pub(crate) mod lane;
mod lane_loop;
pub(crate) mod lane_role;
mod lane_tasks;
#[cfg(feature = "replies-first")]
pub(crate) mod large_replies;
pub(crate) mod memory_budget;
#[cfg(feature = "replies-first")]
mod memory_wait_list;
#[cfg(feature = "replies-first")]
mod memory_waits;
pub(crate) mod message;
pub(crate) mod nested_wait;
pub(crate) mod parked_request;
mod ready_list;
mod recent_rings;
mod ring_polling;
mod spinning;
pub(crate) mod strategy;
mod threads;
pub(crate) mod worker;

pub(crate) use acceptor::delegate;
pub(crate) use threads::start;
