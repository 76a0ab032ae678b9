//! CORBA services on Corelane: the Naming Service, event channels, and admission of tasks to cores.
#![forbid(unsafe_code)]

pub mod cores;
pub mod events;
pub mod naming;
pub mod store;

#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/events.md")]
    struct Events;
    #[doc = include_str!("../../../docs/naming.md")]
    struct Naming;
    #[doc = include_str!("../../../docs/task-allocation.md")]
    struct TaskAllocation;
}
