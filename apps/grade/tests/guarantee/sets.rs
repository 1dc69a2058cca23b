//! Data sets' own cases, and lines that can't be used.

use grade::{TaskOptions, Verdict, read_samples, read_tasks};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{grade, grade_tasks, grader, settings, write_lines};

/// A task of LiveCodeBench's form, with all cases public.
fn live_code_bench(kind: &str, input: &str, output: &str) -> Value {
    let cases = json!([{ "input": input, "output": output, "testtype": kind }]);
    json!({
        "question_id": "t", "question_content": "", "starter_code": "", "private_test_cases": "[]",
        "public_test_cases": cases.to_string(), "metadata": r#"{"func_name": "pairs"}"#,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn data_sets_are_graded_by_their_own_rules() {
    let grader = grader(settings()).await;
    let call = live_code_bench("functional", "[1, 2]\n10", "[[1, 10], [2, 10]]");
    let lines = live_code_bench("stdin", "2\n", "0.50\n1\n");
    let apps = |inputs: Value, outputs: Value| {
        let cases = json!({ "fn_name": "f", "inputs": inputs, "outputs": outputs });
        json!({ "id": "t", "input_output": cases.to_string() })
    };
    let tuples = apps(json!([[[1, 2]]]), json!([[[[1], [2]]]]));
    let keys = apps(json!([[{ "1": 5 }]]), json!([[5]]));
    let programs =
        json!({ "id": "t", "input_output": { "inputs": [["1", "2"]], "outputs": [["3", ""]] } });
    let contests = json!({ "id": "t", "public_tests": { "input": ["1 2"], "output": ["3"] } });
    let method_of = json!({
        "task_id": "t", "prompt": "from typing import *\n", "entry_point": "Solution().pairs",
        "test": "def check(candidate):\n    assert candidate(items=[1], n=2) == [[1, 2]]",
    });
    let module = json!({
        "task_id": "t", "solution_code": "class A:\n    def f(self): return 1",
        "test": "from solution import A\n\ndef test_f():\n    assert A().f() == 1",
    });
    // Names that the data set imports need no import.
    let method = "class Solution:\n    def pairs(self, items: List[int], n: int) -> List[List[int]]:\n        \
                  return tuple([item, n] for item in items)";
    for (task, program, is_right) in [
        (&call, method, true),
        (&call, "def pairs(items, n): return [[item, n] for item in items]", true),
        (&call, "class Solution:\n    def pairs(self, items, n): return []", false),
        (&call, "print([[1, 10], [2, 10]])", false),
        (
            &method_of,
            "class Solution:\n    def pairs(self, items, n): return [[i, n] for i in items]",
            true,
        ),
        (&method_of, "class Solution:\n    def pairs(self, items, n): return []", false),
        (&module, "class A:\n    def f(self): return 1", true),
        (&module, "class A:\n    def f(self): return 2", false),
        (&lines, "n = int(input())\nprint(1 / n)\nprint(1.0)", true),
        (&lines, "print('0.5 1')", false),
        (&lines, "print(gcd(3, 2) / 2); print(1)", true),
        (&tuples, "def f(items): return [(item,) for item in items]", true),
        (&tuples, "def f(items): return items", false),
        (&keys, "def f(items): return items[1]", true),
        (&keys, "class Solution:\n    def f(self, items): return items[1]", true),
        (&keys, "def f(items): return items", false),
        (&programs, "print(int(input()) + int(input()))", true),
        (&programs, "print(1)", false),
        (&contests, "print(sum(map(int, input().split())))", true),
        (&contests, "print(2)", false),
    ] {
        let samples = [json!({ "task_id": "t", "solution": program })];
        let graded = grade(&grader, std::slice::from_ref(task), &samples).await.remove(0);
        let verdict = if is_right { Verdict::Passed } else { Verdict::Failed };
        assert_eq!(graded.verdict, verdict, "{task} with {program}: {graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_cannot_be_used_costs_no_other() {
    let folder = TempDir::new().unwrap();
    let [tasks_file, samples_file] = ["tasks", "samples"].map(|name| folder.path().join(name));
    write_lines(
        &tasks_file,
        &[
            json!({ "task_id": "bad", "input_output": { "inputs": [1], "outputs": [] } }),
            json!({ "task_id": "good", "tests": "assert f(1) == 2" }),
            json!([1]),
            json!({ "task_id": "good", "tests": "assert f(1) == 3" }),
        ],
    );
    let tasks = read_tasks(&tasks_file, TaskOptions::default()).unwrap();
    let told: Vec<String> = tasks.bad.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3);
    assert!(told[0].starts_with("line 1 of") && told[1].starts_with("line 3 of"), "{told:?}");

    let program = "def f(x): return x + 1";
    let samples = [
        json!({ "task_id": "good", "solution": program }),
        json!({ "task_id": "other", "solution": program }),
        json!({ "task_id": "good" }),
        json!({ "solution": program }),
        json!({ "task_id": "bad", "solution": program }),
    ];
    write_lines(&samples_file, &samples);
    let read = read_samples(&samples_file, &tasks.read).unwrap();
    assert_eq!((read.read.len(), read.bad.len()), (2, 3), "{read:?}");
    let grader = grader(settings()).await;
    let usable = [samples[0].clone(), samples[4].clone()];
    let results = grade_tasks(&grader, tasks.read, &usable).await;
    assert!(results[0].passed(), "{results:?}");
    assert_eq!(results[1].verdict, Verdict::TaskError);
    assert!(results[1].message.contains("`input_output` is missing or isn't"), "{results:?}");
}

/// Outputs that a data set's own grader accepts beside the solution's, with inputs and outputs that
/// JSON has no types for.
#[tokio::test(flavor = "multi_thread")]
async fn given_outputs_are_compared_by_the_rules_of_evalplus() {
    let grader = grader(settings()).await;
    let tuple = |items: Value| json!({ "$tuple": items });
    for (name, program, input, expected, verdict) in [
        ("f", "def f(x): return x + (1,)", json!([tuple(json!([0]))]), tuple(json!([0, 1])), true),
        ("f", "def f(x): return [0, 1]", json!([0]), tuple(json!([0, 1])), false),
        ("f", "def f(x): return 0.1 + 0.2", json!([0]), json!(0.3), true),
        ("f", "def f(x): return {*x, 2}", json!([[1]]), json!({ "$set": [2, 1] }), true),
        (
            "f",
            "def f(x): return 2 ** x",
            json!([70]),
            json!({ "$int": "0x400000000000000000" }),
            true,
        ),
        ("Diff", "def Diff(a, b): return [3, 4, 4]", json!([[3], [4]]), json!([4, 3]), true),
        (
            "find_zero",
            "def find_zero(xs): return -xs[0] / xs[1]",
            json!([[2, 1]]),
            json!(-1.9),
            true,
        ),
        ("find_zero", "def find_zero(xs): return 2", json!([[2, 1]]), json!(2), false),
        ("check_str", "def check_str(s): return s", json!(["a"]), json!(true), true),
        ("are_equivalent", "def are_equivalent(*_): return 0", json!([1, 2]), json!(true), true),
        ("sum_div", "def sum_div(n): return 0", json!([8]), json!(7), true),
        ("surface_Area", "def surface_Area(b, h): return 35", json!([3, 4]), json!(34), true),
        ("surface_Area", "def surface_Area(b, h): return 30", json!([3, 4]), json!(34), false),
        (
            "digit_distance_nums",
            "def digit_distance_nums(*_): return 2",
            json!([123, 4]),
            json!(9),
            false,
        ),
        (
            "digit_distance_nums",
            "def digit_distance_nums(*_): return 4",
            json!([123, 4]),
            json!(9),
            true,
        ),
    ] {
        let task = json!({
            "task_id": "t", "prompt": "", "entry_point": name, "base_input": [input.to_string()],
            "expected": [expected.to_string()],
        });
        let graded = crate::grade_one(&grader, task, program).await;
        assert_eq!(graded.passed(), verdict, "{program}: {graded:?}");
    }
}
