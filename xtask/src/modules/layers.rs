//! Check of the layers inside a crate: a file may use files of its layer and of the layers below
//! it.

use super::graph::Graph;

pub(super) struct Layer {
    name: &'static str,
    /// Folders (ending in `/`) and files, of which the longest match applies.
    files: &'static [&'static str],
    below: &'static [&'static str],
}

/// The layers inside the ORB, from the top, as in ARCHITECTURE.md.
pub(super) const ORB: &[Layer] = &[
    Layer {
        name: "face and adapter",
        files: &[
            "lib.rs",
            "orb.rs",
            "orb/",
            "object/",
            "dynamic/",
            "poa/",
            "adapter/",
            "rt/",
            "servant.rs",
            "server_context.rs",
            "current.rs",
            "main_thread.rs",
            "octets_buffer.rs",
            "lendable_octets.rs",
            "operation_table.rs",
            "local.rs",
            "mapping.rs",
            "bits.rs",
            "describe.rs",
            "exception_macros.rs",
            "plain_macros.rs",
            "value/macros.rs",
        ],
        below: &["references", "dispatch", "invocation", "client", "base"],
    },
    Layer {
        name: "references",
        files: &[
            "object.rs",
            "object/typed.rs",
            "reference_macros.rs",
            "any.rs",
            "long_double.rs",
            "value/",
            "written_any.rs",
        ],
        below: &["invocation", "client", "base"],
    },
    Layer { name: "dispatch", files: &["server/"], below: &["base"] },
    Layer { name: "invocation", files: &["invocation/"], below: &["client", "base"] },
    Layer { name: "client", files: &["client/"], below: &["base"] },
    Layer {
        name: "base",
        files: &[
            "address.rs",
            "cancel.rs",
            "ceiling.rs",
            "clock.rs",
            "config.rs",
            "context.rs",
            "cpu_charge.rs",
            "event.rs",
            "exception.rs",
            "exchange.rs",
            "fault.rs",
            "fragment.rs",
            "interceptor.rs",
            "kept_octets.rs",
            "job_budget.rs",
            "lent_messages.rs",
            "listen_address.rs",
            "memory.rs",
            "minor.rs",
            "nested_wait.rs",
            "object_key.rs",
            "orb_context.rs",
            "policy.rs",
            "receive.rs",
            "rt/band.rs",
            "rt/client_policies.rs",
            "rt/config.rs",
            "rt/core_config.rs",
            "rt/protocol.rs",
            "rt/thread_priority.rs",
            "server/config.rs",
            "service_contexts.rs",
            "setters.rs",
            "slot_id.rs",
            "text.rs",
            "thread_context.rs",
            "trail.rs",
            "upcall_stack.rs",
        ],
        below: &[],
    },
];

pub(super) fn check(graph: &Graph, layers: &[Layer]) -> Vec<String> {
    let mut found: Vec<String> = graph
        .files
        .iter()
        .filter(|file| layer_of(file, layers).is_none())
        .map(|file| format!("{file} is in no layer: add it to xtask/src/modules/layers.rs"))
        .collect();
    for (from, to) in graph.edges() {
        let (Some(user), Some(used)) = (layer_of(from, layers), layer_of(to, layers)) else { continue };
        if user.name != used.name && !user.below.contains(&used.name) {
            found.push(format!("{from} uses {to}: layer `{}` may not use layer `{}`", user.name, used.name));
        }
    }
    found
}

pub(super) fn shown(graph: &Graph, layers: &[Layer]) -> String {
    let count = |layer: &Layer| {
        let own = |file: &&String| layer_of(file, layers).is_some_and(|found| found.name == layer.name);
        graph.files.iter().filter(own).count()
    };
    let lines = layers.iter().map(|layer| {
        let below = if layer.below.is_empty() { String::new() } else { format!(" -> {}", layer.below.join(", ")) };
        format!("{} ({} files){below}", layer.name, count(layer))
    });
    lines.collect::<Vec<_>>().join("; ")
}

fn layer_of<'l>(file: &str, layers: &'l [Layer]) -> Option<&'l Layer> {
    let matching = |layer: &'l Layer| {
        let matches = |entry: &&&str| *entry == &file || (entry.ends_with('/') && file.starts_with(**entry));
        layer.files.iter().filter(matches).map(|entry| entry.len()).max().map(|length| (length, layer))
    };
    layers.iter().filter_map(matching).max_by_key(|(length, _)| *length).map(|(_, layer)| layer)
}

#[cfg(test)]
mod tests {
    use super::super::source::tests::parsed;
    use super::*;

    const LAYERS: &[Layer] = &[
        Layer { name: "face", files: &["lib.rs", "low/face.rs"], below: &["low"] },
        Layer { name: "low", files: &["low/"], below: &[] },
    ];

    #[test]
    fn arrow_upwards_and_file_without_layer_are_refused() {
        let graph = Graph::new(&parsed(&[
            ("lib.rs", "mod low; mod other; use low::deep::f;"),
            ("low/mod.rs", "pub mod deep; mod face;"),
            ("low/deep.rs", "use super::face::g; pub fn f() {}"),
            ("low/face.rs", "use super::deep::f; pub fn g() {}"),
            ("other.rs", ""),
        ]));
        let mut found = check(&graph, LAYERS);
        found.sort();
        assert_eq!(
            found,
            [
                "low/deep.rs uses low/face.rs: layer `low` may not use layer `face`",
                "other.rs is in no layer: add it to xtask/src/modules/layers.rs",
            ]
        );
        assert_eq!(shown(&graph, LAYERS), "face (2 files) -> low; low (2 files)");
    }
}
