//! Repetition in a row's file: tables that stand for several.
//!
//! `[axes]` of a row names lists of variables. A table in a list that has `each = ["AXIS", …]` stands for one table for each
//! combination of the elements of these axes, the first axis outermost; `{variable}` in its texts is replaced. A text that is
//! nothing but a variable becomes the variable's value, and is left out where the element of the axis does not have the variable.
//! A table with `all = […]` stands for the tables of that list, so that several kinds can be repeated together.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use toml::{Table, Value};

type Variables = BTreeMap<String, Value>;

/// Replaces all repetitions in a row's file.
pub fn expand(mut row: Table) -> Result<Table> {
    let axes = row.remove("axes").unwrap_or_else(|| Value::Table(Table::new()));
    let axes: BTreeMap<String, Vec<Variables>> = axes.try_into().context("axes are lists of tables")?;
    expand_table(row, &axes, &Variables::new())
}

fn expand_table(table: Table, axes: &BTreeMap<String, Vec<Variables>>, known: &Variables) -> Result<Table> {
    let mut expanded = Table::new();
    for (key, value) in table {
        if let Some(value) = expand_value(value, axes, known)? {
            expanded.insert(key, value);
        }
    }
    Ok(expanded)
}

/// `None` for a text that is nothing but a variable that the axes have, but not the elements in use.
fn expand_value(value: Value, axes: &BTreeMap<String, Vec<Variables>>, known: &Variables) -> Result<Option<Value>> {
    Ok(Some(match value {
        Value::String(text) => return Ok(substitute(text, axes, known)),
        Value::Array(items) => {
            let mut all = Vec::new();
            for item in items {
                expand_item(item, axes, known, &mut all)?;
            }
            Value::Array(all)
        }
        Value::Table(table) => Value::Table(expand_table(table, axes, known)?),
        other => other,
    }))
}

fn expand_item(
    item: Value,
    axes: &BTreeMap<String, Vec<Variables>>,
    known: &Variables,
    all: &mut Vec<Value>,
) -> Result<()> {
    let Value::Table(mut table) = item else {
        all.extend(expand_value(item, axes, known)?);
        return Ok(());
    };
    let each = table
        .remove("each")
        .map_or(Ok(Vec::new()), Value::try_into::<Vec<String>>)?;
    let mut combinations = vec![known.clone()];
    for axis in each {
        let elements = axes.get(&axis).with_context(|| format!("no axis {axis:?}"))?;
        let with = |known: &Variables, element: &Variables| {
            known
                .iter()
                .chain(element)
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        };
        combinations = combinations
            .iter()
            .flat_map(|known| elements.iter().map(move |element| with(known, element)))
            .collect();
    }
    for known in combinations {
        match table.get("all") {
            Some(Value::Array(items)) => {
                for item in items {
                    expand_item(item.clone(), axes, &known, all)?;
                }
            }
            _ => all.push(Value::Table(expand_table(table.clone(), axes, &known)?)),
        }
    }
    Ok(())
}

fn substitute(text: String, axes: &BTreeMap<String, Vec<Variables>>, known: &Variables) -> Option<Value> {
    if let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        if let Some(value) = known.get(name) {
            return Some(value.clone());
        }
        if axes.values().flatten().any(|element| element.contains_key(name)) {
            return None;
        }
    }
    let replaced = known.iter().fold(text, |text, (name, value)| {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.replace(&format!("{{{name}}}"), &shown)
    });
    Some(Value::String(replaced))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_stands_for_each_combination_of_its_axes() {
        let row: Table = toml::from_str(
            r#"
            axes.size = [{ bytes = 100, min = 1.5 }, { bytes = 1024 }]
            axes.peer = [{ name = "Redis" }, { name = "LMDB" }]
            lines = [
              { each = ["size"], all = [
                { each = ["peer"], work = "{bytes} B, {name}, {~later}", at_least = "{min}" },
                { work = "{bytes}" },
              ] },
            ]"#,
        )
        .unwrap();
        let lines = expand(row).unwrap().remove("lines").unwrap();
        let shown: Vec<String> = lines
            .as_array()
            .unwrap()
            .iter()
            .map(|line| format!("{} {}", line["work"], line.get("at_least").is_some()))
            .collect();
        assert_eq!(
            shown,
            [
                r#""100 B, Redis, {~later}" true"#,
                r#""100 B, LMDB, {~later}" true"#,
                "100 false",
                r#""1024 B, Redis, {~later}" false"#,
                r#""1024 B, LMDB, {~later}" false"#,
                "1024 false",
            ]
        );
    }
}
