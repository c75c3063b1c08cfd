//! The files of the pages.

/// The name of each file, with its content.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!($name))),*]
    };
}

/// All files of the pages.
pub(super) const FILES: &[(&str, &str)] = files![
    "api.js",
    "chart.js",
    "dialog.js",
    "dom.js",
    "format.js",
    "history.js",
    "icon.svg",
    "index.html",
    "live.js",
    "main.js",
    "node_actions.js",
    "page.js",
    "parts.js",
    "plan_parts.js",
    "style.css",
    "table.js",
    "views/decisions.js",
    "views/events.js",
    "views/load.js",
    "views/lookup.js",
    "views/node.js",
    "views/nodes.js",
    "views/overview.js",
    "views/plan.js",
    "views/plans.js",
    "views/settings.js",
    "views/store.js",
    "views/stores.js",
    "views/users.js",
];
