//! Scenarios in feature files: the part of Gherkin that openCypher's TCK uses.

/// A scenario, with the examples of an outline put in.
#[derive(Debug, Clone, Default)]
pub struct Scenario {
    pub name: String,
    pub steps: Vec<Step>,
}

/// A step, with the text or the table below it.
#[derive(Debug, Clone, Default)]
pub struct Step {
    pub says: String,
    pub text: String,
    pub table: Vec<Vec<String>>,
}

/// The scenarios of a file.
pub fn scenarios(file: &str) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut scenario = Scenario::default();
    let mut examples: Option<Vec<Vec<String>>> = None;
    // Steps that come before those of each scenario.
    let mut background: Option<Vec<Step>> = None;
    let mut lines = file.lines();
    while let Some(line) = lines.next() {
        let told = line.trim();
        if told == "\"\"\"" {
            let indent = line.len() - line.trim_start().len();
            let text = lines.by_ref().take_while(|line| line.trim() != "\"\"\"");
            let text: Vec<&str> = text
                .map(|line| line.get(indent..).unwrap_or(line.trim_start()))
                .collect();
            scenario.steps.last_mut().unwrap().text = text.join("\n");
        } else if told.starts_with('|') {
            let row = cells(told);
            match &mut examples {
                Some(rows) => rows.push(row),
                None => scenario.steps.last_mut().unwrap().table.push(row),
            }
        } else if told == "Examples:" {
            examples.get_or_insert_default();
        } else if let Some((_, name)) = told.split_once(": ").filter(|(word, _)| word.starts_with("Scenario")) {
            match &background {
                None => background = Some(std::mem::take(&mut scenario.steps)),
                Some(_) => put_in(std::mem::take(&mut scenario), examples.take(), &mut all),
            }
            scenario.name = name.to_owned();
            scenario.steps.extend(background.iter().flatten().cloned());
        } else if let Some((_, says)) = told
            .split_once(' ')
            .filter(|(word, _)| ["Given", "And", "When", "Then", "But"].contains(word))
        {
            scenario.steps.push(Step {
                says: says.to_owned(),
                ..Step::default()
            });
        }
    }
    put_in(scenario, examples, &mut all);
    all
}

fn cells(line: &str) -> Vec<String> {
    let line = line.trim_matches('|').replace("\\|", "\u{1}");
    let cell = |cell: &str| cell.trim().replace('\u{1}', "|").replace("\\\\", "\\");
    line.split('|').map(cell).collect()
}

fn put_in(scenario: Scenario, examples: Option<Vec<Vec<String>>>, all: &mut Vec<Scenario>) {
    let Some((head, rows)) = examples.as_ref().and_then(|rows| rows.split_first()) else {
        all.extend((!scenario.steps.is_empty()).then_some(scenario));
        return;
    };
    for (number, row) in rows.iter().filter(|row| *row != head).enumerate() {
        let put = |text: &String| {
            let parts = head.iter().zip(row);
            parts.fold(text.clone(), |text, (name, value)| {
                text.replace(&format!("<{name}>"), value)
            })
        };
        let step = |step: &Step| Step {
            says: put(&step.says),
            text: put(&step.text),
            table: step.table.iter().map(|row| row.iter().map(put).collect()).collect(),
        };
        all.push(Scenario {
            name: format!("{}, example {}", scenario.name, number + 1),
            steps: scenario.steps.iter().map(step).collect(),
        });
    }
}
