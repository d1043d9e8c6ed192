create table person(id integer primary key, name text, score real);
insert into person(name, score) values ('Ada', 2), ('Alan', 3);
create virtual table note using fts5(body);
insert into note values ('reduce scatter up, gather down');
select avg(score), (select json_array('a', 'b')), (select name from person order by score limit 1) from person
  where (select count(*) from note where note match 'scatter') = 1;
