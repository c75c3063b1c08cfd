//! Builds of graphs that are refused, and dry runs.

use fondaco_builder::{BuildError, GraphOptions, Progress, Types, ValueSelection, build_graph};

use super::options;
use crate::generate::Place;

/// The error of a build that must leave nothing.
fn refused(change: impl FnOnce(&Place, &mut GraphOptions<'_>)) -> String {
    let place = Place::new();
    let edges = place.write("edges.csv", "from,to,weight\nann,bob,1\nann,bob,2\n");
    let mut options = options(&place, &[edges.display().to_string()]);
    change(&place, &mut options);
    let error = build_graph(&options, &Progress::new()).map(drop).unwrap_err();
    assert!(!place.output().exists(), "a failed build leaves nothing");
    error.to_string()
}

#[test]
fn refusals_name_the_mistake_and_the_remedy() {
    let vertices = |content: &'static str| {
        move |place: &Place, options: &mut GraphOptions<'_>| {
            options.vertices = vec![format!("Person={}", place.write("v.csv", content).display())];
        }
    };
    for (error, parts) in [
        (
            refused(|_, options| options.edge_type = "a-b".to_owned()),
            &["invalid edge type \"a-b\"", "letters"][..],
        ),
        (
            refused(|_, options| options.symmetric = Types::Named(vec!["KNOWS".to_owned()])),
            &["--symmetric names the edge type \"KNOWS\"", "\"EDGE\""],
        ),
        (
            refused(|_, options| options.build.key[1] = "too".to_owned()),
            &["no column \"too\"", "did you mean \"to\""],
        ),
        (
            refused(|_, options| options.build.value = ValueSelection::Columns(vec!["weight".to_owned()])),
            &[
                "an edge of type EDGE with properties occurs twice",
                "row 1",
                "row 2",
                "--on-duplicate first",
            ],
        ),
        (
            refused(vertices("name\nann\nbob\nann\n")),
            &["vertex \"ann\" occurs twice", "row 1", "row 3"],
        ),
        (
            refused(vertices("name\nann\n\"\"\n")),
            &["the name of the vertex is empty"],
        ),
        (
            refused(|place, options| {
                vertices("id,name\nann,x\nbob,y\n")(place, options);
                options.vertex_name = "id".to_owned();
            }),
            &["vertices have a column \"name\"", "\"id\"", "--vertex-name name"],
        ),
        (
            refused(|place, options| {
                options.vertices = vec![format!("1st={}", place.write("v.csv", "name\n").display())];
            }),
            &["invalid label \"1st\""],
        ),
        (
            refused(|place, options| {
                options.build.inputs = vec![place.write("e.csv", "from,to\nann,\n").display().to_string()];
            }),
            &[
                "1 bad row(s)",
                "row 1: the name that the edge leads to is empty: \"ann\", \"\"",
            ],
        ),
        (
            refused(|place, options| {
                options.build.inputs = vec![place.write("e.csv", "from,to\n").display().to_string()];
            }),
            &["the input has no rows"],
        ),
    ] {
        for part in parts {
            assert!(error.contains(part), "{part:?} in {error}");
        }
    }
}

#[test]
fn a_dry_run_counts_and_writes_nothing() {
    let place = Place::new();
    let edges = place.write("edges.csv", "from,to\nann,bob\nbob,ann\n");
    let mut options = options(&place, &[edges.display().to_string()]);
    options.symmetric = Types::All;
    let built = build_graph(&options, &Progress::new()).unwrap();
    std::fs::remove_dir_all(place.output()).unwrap();
    options.build.dry_run = true;
    let report = build_graph(&options, &Progress::new()).unwrap();
    assert_eq!((report.edges, report.duplicate_edges), (1, 1));
    assert_eq!(report.build.bytes, built.build.bytes);
    assert_eq!(report.build.records, built.build.records);
    assert!(report.build.manifest.is_none() && !place.output().exists());
}

#[test]
fn an_output_in_use_is_refused_before_the_input_is_read() {
    let place = Place::new();
    let edges = place.write("edges.csv", "from,to\nann,bob\n");
    std::fs::create_dir(place.output()).unwrap();
    std::fs::write(place.output().join("x"), "").unwrap();
    let result = build_graph(&options(&place, &[edges.display().to_string()]), &Progress::new());
    assert!(matches!(result, Err(BuildError::OutputNotEmpty { .. })));
}
