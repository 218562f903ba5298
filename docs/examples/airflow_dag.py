"""Backups that are due, a check and a page, each day at night. `lakebackup` is on the path of the workers."""

from datetime import datetime, timedelta, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "lakebackup",
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"env": {"LAKEBACKUP_CONFIG": "/etc/lakebackup.toml"}, "append_env": True},
):
    # Exit code 6 and 8 (a broker is away, another run is in progress) pass by themselves.
    due = BashOperator(
        task_id="due", bash_command="lakebackup due --run --json", retries=3, retry_delay=timedelta(minutes=5)
    )
    check = BashOperator(task_id="verify", bash_command="lakebackup verify --json")
    page = BashOperator(
        task_id="report",
        bash_command="lakebackup report --html /var/www/lakebackup.html",
        trigger_rule="all_done",
    )
    due >> check >> page
