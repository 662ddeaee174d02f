"""IJB-B or IJB-C from embeddings: python recipes/Face/evaluate_ijb.py EMBEDDINGS PROTOCOL [options]

EMBEDDINGS (.npz, .safetensors) holds the embedding of each image of the protocol under its name
there (1.jpg, 2.jpg, ...), not normalized. PROTOCOL is the folder of the protocol files, or of meta/
with these files:

    ijbc_face_tid_mid.txt            image template medium
    ijbc_template_pair_label.txt     template template 0|1
    ijbc_1N_gallery_G1.csv, _G2.csv  with the columns TEMPLATE_ID and SUBJECT_ID (IJB-B: S1, S2)
    ijbc_1N_probe_mixed.csv          the same
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from recipes.Face.ijb_evaluation import TASKS, evaluate_ijb, ijb_table, read_ijb_protocol
from simple_spk.cli.errors import exit_code
from simple_spk.cli.options import add_json
from simple_spk.cli.outputs import check_outputs, inputs_of, print_results
from simple_spk.cli.scoring import add_similarity, named_similarity
from simple_spk.evaluation.embedding_files import read_embeddings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("embeddings", type=Path, help="embeddings of all images")
    parser.add_argument("protocol", type=Path, help="folder of the protocol files")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="default: both")
    add_similarity(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Read, compare and report."""
    check_outputs([options.json], inputs_of(options))
    similarity = named_similarity(options)
    protocol = read_ijb_protocol(options.protocol, options.tasks, progress=True)
    embeddings = read_embeddings(options.embeddings)
    result = evaluate_ijb(protocol, embeddings, similarity, progress=True)
    print_results(ijb_table(result), json.dumps(result, indent=2), options.json)


def main() -> int:
    """The command, and its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    options = parser.parse_args()
    return exit_code("evaluate_ijb.py", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
